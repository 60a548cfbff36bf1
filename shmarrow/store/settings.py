"""The settings of a store: validation, and storage in the header of the control file."""

import errno
import operator
import os
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, StorageError, shown, storage_error
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME, is_location
from shmarrow.segment.host import boot_id
from shmarrow.segment.location import decoded
from shmarrow.store import protocol as p

EVICTIONS = ("none", "lru")
FIRST_SLOTS = 32
_SPILL_START, _SPILL_MAX = p.HEADER["spill_path"][0], int(p.HEADER["spill_path"][1][:-1])
_SLOT_COUNT = p.HEADER["slots"][0]


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
    spill : str or None
        Directory to which objects are moved when space runs out; None if they are not.
    """

    capacity: int | None
    mode: int
    eviction: str
    durable: bool
    spill: str | None

    def __repr__(self) -> str:
        return f"Settings({', '.join([f'{field}={_show(field, value)}' for field, value in self._asdict().items()])})"


class Wanted(NamedTuple):
    """The settings given by a caller, checked by :func:`wanted`; None for those not given."""

    capacity: int | None = None
    mode: int | None = None
    eviction: str | None = None
    durable: bool | None = None
    spill: str | None = None


def wanted(
    capacity: object = None, mode: object = None, eviction: object = None, durable: object = None, spill: object = None
) -> Wanted:
    """Check each setting; raise InvalidArgument or InvalidType if one is invalid."""
    if eviction is not None and not (isinstance(eviction, str) and eviction in EVICTIONS):
        raise InvalidArgument(f"eviction must be 'lru' or 'none', found {shown(eviction)}")
    if durable is not None and not isinstance(durable, bool):
        raise InvalidType(f"durable must be a bool, found {shown(durable)}")
    return Wanted(
        None if capacity is None else _capacity(capacity),
        None if mode is None else _mode(mode),
        eviction,
        durable,
        None if spill is None else _spill(spill),
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
    found = int(value) if isinstance(value, float) and value.is_integer() else _integer(value)
    if found is None:
        raise InvalidType(f"capacity must be a number of bytes, an int, found {shown(value)}")
    if not 1 <= found < 1 << 63:
        raise InvalidArgument(f"capacity must be a number of bytes from 1 to 2**63 - 1, found {shown(value)}")
    return found


def _mode(value: Any) -> int:
    found = _integer(value)
    if found is None or found & ~0o666 or found & 0o600 != 0o600 or found & 0o022 & ~(found >> 1):
        bits = shown(value) if found is None or found < 0 else oct(found)
        hint = f", a decimal number: did you mean 0o{found}?" if found in (600, 640, 644, 660, 664, 666) else ""
        raise InvalidArgument(
            "mode must be the permission bits of files, such as 0o600, 0o640 or 0o660: read and write for the owner, "
            f"no write without read permission, no execute permission; found {bits}{hint}"
        )
    return found


def _spill(value: Any) -> str:
    if not is_location(value):
        raise InvalidType(f"spill must be the path of a directory, found {shown(value)}")
    text = decoded(value)
    path = os.path.abspath(os.path.expanduser(text)) if text and not {"\0", "\n"}.intersection(text) else ""
    try:
        sizes = [len(part.encode()) for part in path.split("/")]
    except UnicodeEncodeError:
        sizes = [_SPILL_MAX]
    wrong = not path or "://" in text or text.startswith(SHM_SCHEME)
    if wrong or max(sizes) > 255 or sum(sizes) + len(sizes) > _SPILL_MAX:
        raise InvalidArgument(
            f"spill must be the path of a directory on disk, at most {_SPILL_MAX} bytes of UTF-8, found {shown(value)}"
        )
    return path


def check_spill(spill: str, store: str) -> None:
    """Check that a spill directory can be created, and is neither in the store nor in shared memory like the store.

    Raises
    ------
    InvalidArgument, StorageError
        If it is in either; if one of its parents is not a directory; or if this user lacks write permission.
    """
    if spill.startswith(SHM_DIRECTORY + "/") and store.startswith(SHM_DIRECTORY + "/"):
        raise InvalidArgument(f"spill must be a directory on a disk, found {spill!r}, in shared memory like the store")
    if os.path.commonpath([spill, store]) == store:
        raise InvalidArgument(f"the spill directory {spill!r} is in the store itself; choose one on another disk")
    there = spill
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    number = 0 if os.path.isdir(there) else errno.ENOTDIR
    if not number and not os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        number = errno.EACCES
    if number:
        raise storage_error(OSError(number, os.strerror(number)), "use the spill directory", spill)


@cache
def this_boot() -> bytes:
    """Return the boot id of the host, 16 bytes."""
    found = boot_id()
    with suppress(ValueError):
        if len(found) == 36:  # a UUID
            return bytes.fromhex(found.replace("-", ""))
    from hashlib import blake2b

    return blake2b(found.encode(), digest_size=16).digest()  # without boot ids, `boot_id` returns the host name


def destroyed(name: str) -> StorageError:
    """Return the error for a store that was, or is being, destroyed."""
    return StorageError(
        errno.ESTALE,
        f"the store {name!r} was destroyed; open it again; if the error persists, the process that destroyed it was "
        "killed before it had removed all files; remove the directory",
    )


# --- the header -------------------------------------------------------------------------------------------------


def pack_header(settings: Settings, store_id: bytes | None = None, modulus: int | None = None) -> bytes:
    """Return the header of a new control file."""
    path = (settings.spill or "").encode()
    header = bytearray(p.JOURNALS[0])
    p.FIXED.pack_into(
        header, 0, p.MAGIC, p.VERSION, p.SLOT_SIZE, p.SLOTS, store_id or os.urandom(16), this_boot(),
        modulus or _prime(), settings.capacity or 0, EVICTIONS.index(settings.eviction), settings.mode,
        settings.durable, len(path),
    )  # fmt: skip
    header[_SLOT_COUNT : _SLOT_COUNT + 8] = FIRST_SLOTS.to_bytes(8, "little")
    header[_SPILL_START : _SPILL_START + len(path)] = path
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
    magic, version, slot_size, offset, store_id, _, modulus, capacity, eviction, mode, durable, length = (
        p.FIXED.unpack_from(header)
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
    elif eviction > 1 or length > _SPILL_MAX:
        wrong = " is damaged: its settings are invalid"
    spill = None
    if not wrong and length:
        try:
            spill = header[_SPILL_START : _SPILL_START + length].decode()
            if spill[0] != "/" or "\0" in spill:
                wrong = f" is damaged: {spill!r} is not a valid path of a spill directory"
        except UnicodeDecodeError:
            wrong = " is damaged: the spill path is not UTF-8"
    if wrong:
        raise InvalidData(f"the control file of {where!r}{wrong}")
    return Settings(capacity or None, mode & 0o777, EVICTIONS[eviction], bool(durable), spill), store_id, modulus


def check_settings(settings: Settings, want: Wanted, where: str) -> None:
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
