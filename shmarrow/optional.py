"""Optional packages: imported on first use, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shmarrow.errors import MissingExtra

EXTRAS = {
    "jax": "jax",
    "ml_dtypes": "tensor",
    "nanoarrow": "arrow",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "scipy": "tensor",
    "shtab": "cli",
    "sparse": "sparse",
    "torch": "torch",
}
"""The extras of shmarrow by the package that they install."""


def optional(module: str, hint: str | None = None) -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module : str
        Its name.
    hint : str, optional
        What to do without it.

    Raises
    ------
    MissingExtra
        If it is not installed; names the extra to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        command = f"pip install 'shmarrow[{EXTRAS[package]}]'"
        raise MissingExtra(f"{package} is needed here: {command} ({error})", hint=hint) from None
