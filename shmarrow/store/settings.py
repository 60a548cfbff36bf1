# SPDX-License-Identifier: Apache-2.0
"""The settings of a store: validation, and storage in the header of the control file."""

import errno
import operator
import os
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, StorageError, shown
from shmarrow.memory import boot_id
from shmarrow.store import protocol as p

EVICTIONS = ("none", "lru")
FIRST_SLOTS = 32
BOOT = slice(p.HEADER["boot_id"][0], p.HEADER["boot_id"][0] + 16)
"""The bytes of the header that contain the boot id."""
SETTINGS = slice(p.HEADER["capacity"][0], p.IDENTITY.end)
"""The bytes of the header that contain the settings."""


class Settings(NamedTuple):
    """The settings of a store.

    Attributes
    ----------
    capacity : int or None
        Maximum total size of all objects in bytes; None if unlimited.
    mode : int
        Permission bits: 0600 is private, 0640 lets the group read, 0660 lets it write.
    eviction : str
        ``"lru"`` or ``"none"``.
    durable : bool
        Whether every change is written to disk before the call returns.
    """

    capacity: int | None
    mode: int
    eviction: str
    durable: bool

    def __repr__(self) -> str:
        return f"Settings({', '.join([f'{field}={_show(field, value)}' for field, value in self._asdict().items()])})"


class RequestedSettings(NamedTuple):
    """The settings given by a caller, checked by :func:`parse_settings`; None for those not given."""

    capacity: int | None = None
    mode: int | None = None
    eviction: str | None = None
    durable: bool | None = None


def parse_settings(
    capacity: object = None, mode: object = None, eviction: object = None, durable: object = None
) -> RequestedSettings:
    """Check each setting; raise InvalidArgument or InvalidType if one is invalid."""
    if eviction is not None and not (isinstance(eviction, str) and eviction in EVICTIONS):
        raise InvalidArgument(f"eviction must be 'lru' or 'none', found {shown(eviction)}")
    if durable is not None and not isinstance(durable, bool):
        raise InvalidType(f"durable must be a bool, found {shown(durable)}")
    return RequestedSettings(
        None if capacity is None else _capacity(capacity),
        None if mode is None else _mode(mode),
        eviction,
        durable,
    )


def default_eviction(capacity: int | None) -> str:
    """Return the eviction policy of a store for which none was given."""
    return "none" if capacity is None else "lru"


def _integer(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _capacity(value: Any) -> int:
    if isinstance(value, str):
        from shmarrow.display import parse_size

        capacity = parse_size(value)
    else:
        capacity = int(value) if isinstance(value, float) and value.is_integer() else _integer(value)
    if capacity is None:
        raise InvalidType(f"capacity must be a number of bytes, or text such as '64MiB' or '8GB', found {shown(value)}")
    if not 1 <= capacity < 1 << 63:
        raise InvalidArgument(f"capacity must be a number of bytes from 1 to 2**63 - 1, found {shown(value)}")
    return capacity


def _mode(value: Any) -> int:
    mode = _integer(value)
    if mode is None or mode & ~0o666 or mode & 0o600 != 0o600 or mode & 0o022 & ~(mode >> 1):
        text = shown(value) if mode is None or mode < 0 else oct(mode)
        hint = f", a decimal number: did you mean 0o{mode}?" if mode in (600, 640, 644, 660, 664, 666) else ""
        raise InvalidArgument(
            "mode must be the permission bits of files, such as 0o600, 0o640 or 0o660: read and write for the owner, "
            f"no write without read permission, no execute permission; found {text}{hint}"
        )
    return mode


@cache
def this_boot() -> bytes:
    """Return the boot id of the host, 16 bytes."""
    boot = boot_id()
    with suppress(ValueError):
        if len(boot) == 36:  # a UUID
            return bytes.fromhex(boot.replace("-", ""))
    from hashlib import blake2b

    return blake2b(boot.encode(), digest_size=16).digest()  # without boot ids, `boot_id` returns the host name


RESCUE = "`shmarrow rescue {} NEW` copies its objects to a new store"
"""The hint of an error about a damaged catalog."""


def destroyed(name: str) -> StorageError:
    """Return the error for a store that was, or is being, destroyed."""
    return StorageError(
        errno.ESTALE,
        f"the store {name!r} was destroyed; open it again; if the error persists, a process was stopped or killed when "
        "it removed the store: open it in a process with write permission, which finishes that",
    )


# --- the header -------------------------------------------------------------------------------------------------


def pack_header(settings: Settings, store_id: bytes | None = None, modulus: int | None = None) -> bytes:
    """Return the header of a new control file."""
    header = bytearray(p.JOURNALS[0])
    p.IDENTITY.struct.pack_into(
        header, 0, p.MAGIC, p.VERSION, p.SLOT_SIZE, p.SLOTS, store_id or os.urandom(16), this_boot(),
        modulus or _prime(), settings.capacity or 0, EVICTIONS.index(settings.eviction), settings.mode,
        settings.durable,
    )  # fmt: skip
    return bytes(header)


def _prime() -> int:
    """Return a random prime, so that names with colliding hashes cannot be chosen on purpose."""
    while True:
        number = 1 << 60 | int.from_bytes(os.urandom(8), "little") >> 4 | 1
        if all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11, 13)):
            return number


def read_settings(header: bytes, where: str) -> tuple[Settings, bytes, int]:
    """Return the settings, the store id and the modulus of the hash from a header.

    Raises
    ------
    InvalidData
        If it is not the header of a store, of another version, or damaged.
    """
    magic, version, slot_size, offset, store_id, _, modulus, capacity, eviction, mode, durable = (
        p.IDENTITY.struct.unpack_from(header)
    )
    if int.from_bytes(magic, "little") == p.DESTROYED:
        raise destroyed(where)
    wrong = ""
    if magic != p.MAGIC:
        wrong = f": expected the magic {p.MAGIC!r}, found {magic!r}"
    elif version != p.VERSION:
        wrong = f": expected version {p.VERSION}, found {version}; use a version of shmarrow that supports it"
    elif (slot_size, offset) != (p.SLOT_SIZE, p.SLOTS) or not 1 << 60 < modulus < 1 << 61:
        wrong = " is damaged: its header is invalid"
    elif eviction > 1:
        wrong = " is damaged: its settings are invalid"
    if wrong:
        raise InvalidData(f"the control file of {where!r}{wrong}", hint=RESCUE.format(where))
    return (
        Settings(capacity or None, mode & 0o777, EVICTIONS[eviction], bool(durable)),
        store_id,
        modulus,
    )


def check_settings(settings: Settings, want: RequestedSettings, where: str) -> None:
    """Raise InvalidArgument if a given setting differs from the store's."""
    for field, have, asked in zip(Settings._fields, settings, want, strict=True):
        if asked is not None and asked != have:
            raise InvalidArgument(
                f"the store {where!r} has {field}={_show(field, have)}, and was opened with "
                f"{field}={_show(field, asked)}; settings belong to the store: leave them out, or change them with "
                "Store.configure"
            )


def _show(field: str, value: Any) -> str:
    return f"0o{value:03o}" if field == "mode" else repr(value)
