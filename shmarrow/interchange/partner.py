"""The one way to import a partner: late, and with a word on what to install where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shmarrow.errors import MissingExtra


@contextmanager
def needed(package: str, extra: str) -> Iterator[None]:
    """Around the import of an optional package.

    Raises
    ------
    MissingExtra
        If it is not installed, with the extra that brings it.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{package} is needed here: pip install 'shmarrow[{extra}]' ({error})") from None
