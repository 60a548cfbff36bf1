"""The data types of Arrow (columnar format, "Data Types"; Schema.fbs), fields and schemas."""

from typing import TYPE_CHECKING, Any

from shmarrow.types.base import *  # noqa: F403
from shmarrow.types.extension import *  # noqa: F403
from shmarrow.types.field import *  # noqa: F403
from shmarrow.types.nested import *  # noqa: F403
from shmarrow.types.primitive import *  # noqa: F403
from shmarrow.types.schema import *  # noqa: F403

if TYPE_CHECKING:
    from shmarrow.types.dtypes import *  # noqa: F403
    from shmarrow.types.predicates import *  # noqa: F403
    from shmarrow.types.unify import *  # noqa: F403


def _late() -> dict[str, Any]:
    """Import the members that are loaded on first use."""
    from shmarrow.types import dtypes, predicates, unify

    return {name: getattr(module, name) for module in (dtypes, predicates, unify) for name in module.__all__}


def __getattr__(name: str) -> Any:
    if name.startswith("is_") or name in ("from_numpy_dtype", "unify_schemas"):
        globals().update(_late())
    if name not in globals():
        raise AttributeError(f"module 'shmarrow.types' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_late()})
