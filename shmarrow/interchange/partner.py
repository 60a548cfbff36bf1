"""Importing optional dependencies, with an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shmarrow.errors import MissingExtra


@contextmanager
def needed(package: str, extra: str) -> Iterator[None]:
    """Wrap the import of an optional package.

    Raises
    ------
    MissingExtra
        If it is not installed; names the extra to install.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{package} is needed here: pip install 'shmarrow[{extra}]' ({error})") from None
