"""The ``from_...`` and ``to_...`` methods of tensors, whose modules are imported on first use."""

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
"""The methods of a class, by the module that adds them."""

_CONVERTERS = {
    "pyarrow": ("pyarrow_tensors", "tensor_from_pyarrow"),
    "jax": ("jax", "tensor_from_jax"),
    "jaxlib": ("jax", "tensor_from_jax"),
    "torch": ("torch", "from_torch"),
    "scipy": ("scipy", "from_scipy"),
    "sparse": ("pydata_sparse", "from_pydata_sparse"),
}
"""The module and function that convert the objects of a package to tensors, by the name of the package."""


class _Door:
    """A descriptor that on first access imports a module, which replaces it by a method."""

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
    """Add the methods of dense tensors."""
    from shmarrow.tensor.dense import Tensor

    _open(Tensor, _DENSE)


def open_sparse() -> None:
    """Add the methods of sparse tensors."""
    from shmarrow.tensor.sparse import SparseTensor

    _open(SparseTensor, _SPARSE)


def open_converters() -> None:
    """Register the converters of other packages' objects to tensors."""
    from shmarrow.tensor.convert import CONVERTERS

    CONVERTERS.update({package: _converter(*place) for package, place in _CONVERTERS.items()})


def _converter(module: str, function: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return getattr(import_module(f"shmarrow.interchange.{module}"), function)(value)

    return convert
