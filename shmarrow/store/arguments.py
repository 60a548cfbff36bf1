# SPDX-License-Identifier: Apache-2.0
"""Validation of the arguments of a store's methods: names, prefixes, sizes and times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType, iterated, shown
from shmarrow.store.protocol import NAME_MAX, OWNER_LOCKS
from shmarrow.types.arguments import as_bool, as_int, as_utf8

_FOREVER = 10**9
"""Maximum timeout in seconds: about 30 years."""


def as_name(name: object) -> bytes:
    """Encode the name of an object; InvalidArgument or InvalidType if it is invalid."""
    if not isinstance(name, str):
        raise InvalidType(f"the name of an object must be a str, found {shown(name)}")
    coded = name.encode() if name.isascii() else as_utf8(name, "the name of an object")
    if not 0 < len(coded) <= NAME_MAX or b"\0" in coded:
        raise InvalidArgument(
            f"the name of an object must have 1 to {NAME_MAX} bytes and no NUL, found {shown(name)} of {len(coded)}"
        )
    return coded


def as_new_name(name: object) -> bytes:
    """Encode the name of a new object; None generates one."""
    return os.urandom(12).hex().encode() if name is None else as_name(name)


def as_names(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list, all checked."""
    checked = [names] if isinstance(names, str) else list(iterated(names, "the names of objects"))
    for name in checked:
        as_name(name)
    return checked


def as_prefix(prefix: object) -> str:
    """Check a prefix of names."""
    if not isinstance(prefix, str):
        raise InvalidType(f"prefix must be a str, found {shown(prefix)}")
    return prefix if prefix.isascii() else as_utf8(prefix, "prefix").decode()


def as_owned(owned: Any) -> bool | int:
    """Check ``owned``: whether this process owns objects, or the owner number of another process."""
    if not isinstance(owned, (int, np.integer)) or isinstance(owned, bool):
        return as_bool(owned, "owned", False)
    if not 0 < owned < OWNER_LOCKS:
        raise InvalidArgument(f"owned must be True, False or a number returned by Store.owner(), found {owned}")
    return int(owned)


THIS_PROCESS = -1


class PutOptions(NamedTuple):
    """The validated options of :meth:`Store.put`.

    ``expires`` is the expiry time in nanoseconds since 1970; 0 for never. ``owner`` is an owner number, 0 for none, or
    :data:`THIS_PROCESS`.
    """

    overwrite: bool
    expires: int
    owner: int
    protect: bool
    if_generation: int | None


def as_put_options(
    owned: bool | int, overwrite: bool, expire_after: float | None, protect: bool = False, if_generation: Any = None
) -> PutOptions:
    """Check the options of an object that is put by a store opened with ``owned``."""
    return PutOptions(
        as_bool(overwrite, "overwrite", False),
        as_expiry(expire_after),
        THIS_PROCESS if owned is True else int(owned),
        as_bool(protect, "protect", False),
        None if if_generation is None else as_count(if_generation, "if_generation"),
    )


def as_count(value: Any, what: str) -> int:
    """Check a non-negative int: a number of bytes, or a generation."""
    count = as_int(value, what)
    if count < 0:
        raise InvalidArgument(f"{what} must not be negative, found {count}")
    return count


def as_timeout(timeout: Any) -> float | None:
    """Check a timeout in seconds; None waits forever."""
    if timeout is None:
        return None
    if not _is_number(timeout) or not 0 <= timeout <= _FOREVER:
        raise InvalidArgument(
            f"timeout must be a number of seconds from 0 to {_FOREVER}, or None, found {shown(timeout)}"
        )
    return float(timeout)


def as_expiry(seconds: Any) -> int:
    """Return the expiry time in nanoseconds since 1970; 0 for never."""
    if seconds is None:
        return 0
    if not _is_number(seconds) or not seconds >= 0:
        raise InvalidArgument(f"the expiry time must be at least 0 seconds, found {shown(seconds)}")
    if seconds > _FOREVER:
        return 0
    return time.time_ns() + int(seconds * 1e9)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
