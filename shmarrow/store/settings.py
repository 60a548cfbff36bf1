"""The settings of a store, which belong to it whoever opens it: checked, and kept in the header of its control file."""

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
        The most bytes that its objects may take.
    mode : int
        Permission bits: 0600 for its owner alone, 0640 for a group that reads, 0660 for one that writes.
    eviction : str
        ``"lru"`` or ``"none"``.
    durable : bool
        Whether every change is on the disk before the call returns.
    spill : str or None
        The directory that objects move to when there is no room.
    """

    capacity: int | None
    mode: int
    eviction: str
    durable: bool
    spill: str | None

    def __repr__(self) -> str:
        return f"Settings({', '.join([f'{field}={_show(field, value)}' for field, value in self._asdict().items()])})"


class Wanted(NamedTuple):
    """The settings that a caller names; None for whatever the store has. Checked by :func:`wanted`."""

    capacity: int | None = None
    mode: int | None = None
    eviction: str | None = None
    durable: bool | None = None
    spill: str | None = None


def wanted(
    capacity: object = None, mode: object = None, eviction: object = None, durable: object = None, spill: object = None
) -> Wanted:
    """Check settings one by one; InvalidArgument or InvalidType if one cannot be a setting."""
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
    """What a store does where no eviction is named."""
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
            "mode is the permission bits of files, such as 0o600, 0o640 or 0o660: the owner reads and writes, nobody "
            f"writes who may not read, and nobody executes; found {bits}{hint}"
        )
    return found


def _spill(value: Any) -> str:
    if not is_location(value):
        raise InvalidType(f"spill is the path of a directory, found {shown(value)}")
    text = decoded(value)
    path = os.path.abspath(os.path.expanduser(text)) if text and not {"\0", "\n"}.intersection(text) else ""
    try:
        sizes = [len(part.encode()) for part in path.split("/")]
    except UnicodeEncodeError:
        sizes = [_SPILL_MAX]
    wrong = not path or "://" in text or text.startswith(SHM_SCHEME)
    if wrong or max(sizes) > 255 or sum(sizes) + len(sizes) > _SPILL_MAX:
        raise InvalidArgument(
            f"spill is the path of a directory on a disk, at most {_SPILL_MAX} bytes of UTF-8, found {shown(value)}"
        )
    return path


def check_spill(spill: str, store: str) -> None:
    """Refuse a spill directory that cannot be made, or that is in the store at a path, or in shared memory like it.

    Raises
    ------
    InvalidArgument, StorageError
        If it is; or there is another file in its path; or this user may not write there.
    """
    if spill.startswith(SHM_DIRECTORY + "/") and store.startswith(SHM_DIRECTORY + "/"):
        raise InvalidArgument(f"spill must be a directory on a disk, found {spill!r}, in shared memory like the store")
    if os.path.commonpath([spill, store]) == store:
        raise InvalidArgument(f"the spill directory {spill!r} is in the store itself; give it one on another disk")
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
    """The id of this boot of the host, 16 bytes."""
    found = boot_id()
    with suppress(ValueError):
        if len(found) == 36:  # a UUID
            return bytes.fromhex(found.replace("-", ""))
    from hashlib import blake2b

    return blake2b(found.encode(), digest_size=16).digest()  # the name of a host without boot ids


def destroyed(name: str) -> StorageError:
    """The error for a store that was, or is being, removed."""
    return StorageError(
        errno.ESTALE,
        f"the store {name!r} was destroyed; open it again; if the error persists, the process that destroyed it was "
        "killed before it had removed all files; remove the directory",
    )


# --- the header -------------------------------------------------------------------------------------------------


def pack_header(settings: Settings, store_id: bytes | None = None, modulus: int | None = None) -> bytes:
    """The header of a new control file."""
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
    """A random prime, so that nobody can choose names whose hashes are equal."""
    while True:
        number = 1 << 60 | int.from_bytes(os.urandom(8), "little") >> 4 | 1
        if all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11, 13)):
            return number


def read_settings(header: bytes, where: str) -> tuple[Settings, bytes, int]:
    """The settings, the store id and the modulus of the hash that a header holds.

    Raises
    ------
    InvalidData
        If it is none of a store, of another version, or damaged.
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
        wrong = f": expected version {p.VERSION}, found {version}; use a shmarrow that knows it"
    elif (slot_size, offset) != (p.SLOT_SIZE, p.SLOTS) or not 1 << 60 < modulus < 1 << 61:
        wrong = " is damaged: its header makes no sense"
    elif eviction > 1 or length > _SPILL_MAX:
        wrong = " is damaged: its settings make no sense"
    spill = None
    if not wrong and length:
        try:
            spill = header[_SPILL_START : _SPILL_START + length].decode()
            if spill[0] != "/" or "\0" in spill:
                wrong = f" is damaged: {spill!r} is no path of a spill directory"
        except UnicodeDecodeError:
            wrong = " is damaged: the spill path is not UTF-8"
    if wrong:
        raise InvalidData(f"the control file of {where!r}{wrong}")
    return Settings(capacity or None, mode & 0o777, EVICTIONS[eviction], bool(durable), spill), store_id, modulus


def check_settings(settings: Settings, want: Wanted, where: str) -> None:
    """InvalidArgument for settings other than those of the store."""
    for field, have, asked in zip(Settings._fields, settings, want, strict=True):
        if asked is not None and asked != have:
            raise InvalidArgument(
                f"the store {where!r} has {field}={_show(field, have)}, and was opened with "
                f"{field}={_show(field, asked)}; settings belong to the store: leave them out, or change them with "
                "Store.configure"
            )


def _show(field: str, value: Any) -> str:
    return f"0o{value:03o}" if field == "mode" else repr(value)
