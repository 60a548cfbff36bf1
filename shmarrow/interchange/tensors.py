"""The doors of tensors: their ``from_...`` and ``to_...`` methods, whose modules are imported when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_DENSE = {"torch": ("from_torch", "to_torch", "pinned"), "jax": ("from_jax", "to_jax")}
_SPARSE = {
    "torch": ("from_torch", "to_torch"),
    "scipy": ("from_scipy", "to_scipy"),
    "pydata_sparse": ("from_pydata_sparse", "to_pydata_sparse"),
}
"""The methods of a class, by the module here that gives it them."""

_CONVERTERS = {
    "pyarrow": ("pyarrow_tensors", "tensor_from_pyarrow"),
    "jax": ("jax", "tensor_from_jax"),
    "jaxlib": ("jax", "tensor_from_jax"),
    "torch": ("torch", "from_torch"),
    "scipy": ("scipy", "from_scipy"),
    "sparse": ("pydata_sparse", "from_pydata_sparse"),
}
"""By the name of a package, the module here and its function that makes a tensor of the package's objects."""


class _Door:
    """An attribute of a class until it is first asked for: then a module is imported, which puts a method there."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __get__(self, instance: Any, cls: type) -> Any:
        import_module(f"shmarrow.interchange.{self.module}")
        return getattr(cls if instance is None else instance, self.name)


def _open(cls: type, methods: Mapping[str, tuple[str, ...]]) -> None:
    for module, names in methods.items():
        for name in names:
            setattr(cls, name, _Door(module, name))


def open_dense() -> None:
    """Give dense tensors their methods."""
    from shmarrow.tensor.dense import Tensor

    _open(Tensor, _DENSE)


def open_sparse() -> None:
    """Give sparse tensors their methods."""
    from shmarrow.tensor.sparse import SparseTensor

    _open(SparseTensor, _SPARSE)


def open_converters() -> None:
    """Let tensors be made of the objects of other packages."""
    from shmarrow.tensor.convert import CONVERTERS

    CONVERTERS.update({package: _converter(*place) for package, place in _CONVERTERS.items()})


def _converter(module: str, function: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return getattr(import_module(f"shmarrow.interchange.{module}"), function)(value)

    return convert
