# SPDX-License-Identifier: Apache-2.0
"""The exceptions of shmarrow, the :class:`Limits` of readers, and what imports optional packages.

Invariants:

* every exception that shmarrow raises on purpose derives from :class:`ShmarrowError`, and from the builtin
  exception that a Python user would expect for the same mistake;
* an error is data: ``where`` it occurred, its ``message`` (what was expected and found), and an optional ``hint``;
  whoever shows it may word these in another way, and nobody takes the text of an error apart;
* who raises an error knows the value, who calls knows the place: each level adds its part of ``where`` with :class:`at`
  to the same exception object. So an error that is kept, to be raised again later, is raised as a copy;
* an optional package is imported on first use, with an error that names the extra to install.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Self, TypeAlias, TypeVar

Part: TypeAlias = tuple[Any, ...]
"""One part of the location of an error: its kind, then its number and name if it has them.

Examples: ``("batch", 3)``, ``("column", 2, "x")``, ``("child", "item")``, ``("row", 17)``; a name alone, such as that
of a file, is ``("data.arrow",)``.
"""


class ShmarrowError(Exception):
    """Base class of every error that shmarrow raises.

    Its text is ``data.arrow: batch 3: column 2 'x': message; hint``. Pickling and copying keep all attributes.

    Parameters
    ----------
    *args : object
        The message; the classes that are an ``OSError`` take the errno before it.
    where : iterable of tuple, optional
        The location as far as the raiser knows it; callers put their parts in front of it.
    hint : str, optional
        What to do about it.
    message : str, optional
        Instead of ``args``: torch raises errors of its workers anew with this argument, if their class has a message.

    Attributes
    ----------
    where : tuple of tuple
        The location, outermost part first, such as ``(("data.arrow",), ("batch", 3), ("column", 2, "x"))``.
    hint : str or None
        What to do about it.
    """

    where: tuple[Part, ...] = ()
    hint: str | None = None

    def __init__(
        self, *args: Any, where: Iterable[Part] = (), hint: str | None = None, message: str | None = None
    ) -> None:
        super().__init__(*(args if message is None else (message,)))
        if where:
            self.where = tuple(where)
        if hint:
            self.hint = hint

    @property
    def message(self) -> str:
        """The expectation and the finding, without the location and the hint."""
        return str(self.args[-1]) if self.args else ""

    @property
    def problem(self) -> str:
        """The location and the message, without the hint."""
        return ": ".join([*map(part_text, self.where), self.message])

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}" if self.hint else self.problem

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InvalidData(ShmarrowError, ValueError):
    """Bytes that violate the Arrow format, or values that violate the rules of their type."""


class LimitExceeded(InvalidData):
    """Well-formed input, or an operation, that would need a disproportionate amount of memory.

    That is more than :class:`Limits` allows, or more than 2**24 values from slots that occupy no memory.
    """


class Unsupported(ShmarrowError, NotImplementedError):
    """Legal Arrow that shmarrow does not handle, or something that this platform does not offer."""


class InvalidArgument(ShmarrowError, ValueError):
    """An argument with an invalid value."""


class InvalidType(ShmarrowError, TypeError):
    """An argument or Python value of an unsupported type."""


class IndexOutOfRange(ShmarrowError, IndexError):
    """An index beyond the end of an array, a batch list or a schema."""


class FieldNotFound(ShmarrowError, KeyError):
    """A column or field name that is missing or ambiguous."""


class CopyRequired(ShmarrowError, ValueError):
    """Zero-copy access was requested, but the data cannot be provided without a copy."""


class ExportRefused(CopyRequired, BufferError):
    """Memory that a consumer requested in place, but that cannot be exported to it."""


class Closed(ShmarrowError, ValueError):
    """A reader, writer or segment was used after it was closed."""


class Failed(ShmarrowError, ValueError):
    """A reader, writer or decoder was used after an error in the middle of a message; quotes that first error."""


class MissingExtra(ShmarrowError, ImportError):
    """A required optional package is not installed; the message names the extra to install."""


class StorageError(ShmarrowError, OSError):
    """The operating system refused an operation on a file or a shared memory object."""


class ObjectNotFound(StorageError, FileNotFoundError, KeyError):
    """No object has this name; ``store[name]`` raises it as a ``KeyError`` as well."""


class ObjectExists(StorageError, FileExistsError):
    """The name is taken; published objects are only replaced on request."""


class GenerationChanged(ObjectExists):
    """The object to replace is not the expected one."""


class StoreFull(StorageError):
    """There is not enough space for an object."""


class TimedOut(StorageError, TimeoutError):
    """A wait that ended at its timeout."""


class at:
    """Context manager that adds a part to the location of errors that leave the block.

    The error remains the same object, so its class, errno, cause and traceback stay as they are. Nothing is formatted
    unless the text of an error is asked for.

    Parameters
    ----------
    *part : object
        The kind of the part, then its number and name: ``at("column", 2, "x")``, ``at("data.arrow")``.
    """

    __slots__ = ("_part",)

    def __init__(self, *part: Any) -> None:
        self._part = part

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Add the part in front of the location of an error of shmarrow."""
        if isinstance(error, ShmarrowError):
            error.where = (self._part, *error.where)


def part_text(part: Part) -> str:
    """Format a part of a location: ``batch 3``, ``column 2 'x'``, ``data.arrow``."""
    kind, *names = part
    return " ".join([str(kind), *[shown(name) if isinstance(name, str) else str(name) for name in names]])


class renumbered:
    """Context manager that translates the row in errors that leave the block, from that of a part to that of the whole.

    Parameters
    ----------
    move : callable
        Called with the row, as :func:`row_of` returns it, and ``args``; returns a row, or the parts that replace it,
        such as ``(("row", 3), ("item", 1))``. It is called only if an error has a row.
    *args : object
        More arguments of ``move``.
    """

    __slots__ = ("_args", "_move")

    def __init__(self, move: Callable[..., int | Iterable[Part]], *args: Any) -> None:
        self._move = move
        self._args = args

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Replace the row of an error of shmarrow."""
        if isinstance(error, ShmarrowError) and (row := row_of(error)) is not None:
            found = self._move(row, *self._args)
            parts = (("row", found),) if isinstance(found, int) else found
            i = error.where.index(("row", row))
            error.where = (*error.where[:i], *parts, *error.where[i + 1 :])


def row_of(error: ShmarrowError) -> int | None:
    """Return the row of the array, column or batch at hand in which the error occurred, None if it has none.

    Fields of structs have the rows of their structs; the rows of other children are numbers of their own.
    """
    place = next((part for part in error.where if part[0] != "field"), ("",))
    return place[1] if place[0] == "row" else None


E = TypeVar("E", bound=ShmarrowError)
T = TypeVar("T")


def iterated(values: Iterable[T], expected: str) -> Iterator[T]:
    """Return the iterator of an argument; InvalidType if it is not iterable, such as a 0-d ndarray."""
    try:
        return iter(values)
    except TypeError:
        raise InvalidType(f"expected {expected}, found {shown(values)}") from None


def counted(number: int, noun: str) -> str:
    """Format a count for messages: ``1 null``, ``2 nulls``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(value: object, length: int = 80) -> str:
    """Format a value for messages: the first characters of its repr, or its type if repr fails.

    The repr of an integer of more than 4,300 digits fails, and so may that of any object that a caller passes.
    """
    try:
        return str.__str__(repr(value))[:length]
    except Exception:
        if isinstance(value, int):
            return f"<{type(value).__name__} of {int.bit_length(value)} bits>"
        return f"<{type(value).__name__} object>"


def clip(text: str, length: int) -> str:
    """Truncate a string, stating its length if anything is cut."""
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"


def printable(text: str) -> str:
    """Escape control, invisible and bidirectional characters, for output to a terminal."""
    return text if text.isprintable() else "".join([c if c.isprintable() else repr(c)[1:-1] for c in text])


def full_name(value: object) -> str:
    """Return the type of a value with its package, for error messages: ``RecordBatch`` may be pyarrow's."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return printable(kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}")


def not_expected(expected: str, value: object) -> InvalidType:
    """Make the error for a value that is not of the expected shmarrow type."""
    found = full_name(value)
    bases = [base.__name__ for base in type(value).__mro__] if found.startswith("pyarrow.") else []
    kind = next((base for base in bases if base in _CONVERTED), None)
    hint = f"shmarrow.{_CONVERTED[kind]}(...) converts it" if kind else None
    return InvalidType(f"expected {expected}, found {found}", hint=hint)


_CONVERTED = {
    "RecordBatch": "record_batch",
    "Table": "table",
    "Schema": "schema",
    "Field": "field",
    "DataType": "types.as_type",
    "Array": "array",
    "ChunkedArray": "chunked_array",
}
"""The functions that convert objects of pyarrow, by their class."""


def not_an_index(what: str, key: object) -> InvalidType:
    """Make the error for an index that is neither an int nor a slice."""
    return InvalidType(
        f"{what} is indexed by int or slice, found {type(key).__name__}",
        hint="take(indices) gives the slots at positions, filter(mask) those where a mask is True",
    )


def recast(kind: type[E], error: ShmarrowError) -> E:
    """Return the error as one of another class: what is a wrong argument of a constructor is invalid data in a file."""
    return kind(error.message, where=error.where, hint=error.hint)


def storage_error(error: OSError, action: str, where: str, hint: str | None = None) -> StorageError:
    """Convert an ``OSError`` to the shmarrow error that matches its errno.

    Parameters
    ----------
    error : OSError
        What the operating system said.
    action : str
        What was being done, as a verb phrase: ``"create"``, ``"attach to"``.
    where : str
        The name of the object.
    hint : str, optional
        What to do about it; by default, the hint of the error if it has one.
    """
    kinds = {
        errno.ENOENT: ObjectNotFound,
        errno.EEXIST: ObjectExists,
        errno.ENOSPC: StoreFull,
        errno.EDQUOT: StoreFull,
    }
    kind = kinds.get(error.errno or 0, StorageError)
    inner: tuple[Part, ...] = ()
    if isinstance(error, ShmarrowError):
        inner, hint = error.where, hint or error.hint
    reason = error.strerror or str(error)
    return kind(error.errno or 0, reason, where=[(f"cannot {action} {where!r}",), *inner], hint=hint)


class FrozenValues:
    """Immutable named values, compared by value.

    Written out because ``dataclass(frozen=True, slots=True)`` adds a millisecond per class to every import.
    """

    __slots__: tuple[str, ...] = ("_key",)
    _key: tuple[Any, ...]  # the values; caches use it, as it is hashed in C

    def _fix(self, values: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, values[name])
        try:
            object.__setattr__(self, "_key", tuple(self._values().values()))
            hash(self)
        except TypeError as error:
            raise InvalidType(f"the values of {type(self).__name__} are numbers and strings: {error}") from None

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values replaced."""
        return type(self)(**{**self._values(), **changes})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set; make another with replace()")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenValues):
            return NotImplemented
        return self is other or (type(other) is type(self) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in self._values().items()])})"

    def __reduce__(self) -> tuple[object, ...]:
        return _remake, (type(self), self._values())


def _remake(kind: type[FrozenValues], values: dict[str, Any]) -> FrozenValues:
    return kind(**values)


MAX_DEPTH = 96
"""Maximum nesting depth of types: operations on arrays recurse, and Python allows 1,000 nested calls by default."""


class Limits(FrozenValues):
    """Limits of a reader, beyond which it rejects input with :class:`LimitExceeded`.

    They bound the memory and time that malicious input could take out of proportion to its size.

    Attributes
    ----------
    metadata_bytes : int
        Bytes of one message's metadata, or of a file's footer.
    tables : int
        FlatBuffers tables that one operation reads: one message, one footer, one field, all fields of a schema. Tables
        referenced several times count each time. Regardless of this limit, an operation reads at most 64 tables plus
        one per two bytes.
    depth : int
        Nesting of types within each other; at most 96.
    buffers : int
        Buffers of one record batch.
    decompressed_bytes : int or None
        Decompressed size of the buffers of one column with its children; dictionaries count by themselves. None means
        1,000 times their compressed size, and at least 1 GiB.
    dictionary_bytes : int
        Bytes of all dictionaries that one reader holds, decompressed, deltas included.
    unchecked : bool
        True exports arrays to other libraries without checking their values first. Only for data written by your own
        code: invalid offsets, views, indices or UTF-8 can crash the process or leak its memory.
    """

    __slots__ = ("buffers", "decompressed_bytes", "depth", "dictionary_bytes", "metadata_bytes", "tables", "unchecked")
    metadata_bytes: int
    tables: int
    depth: int
    buffers: int
    decompressed_bytes: int | None
    dictionary_bytes: int
    unchecked: bool

    def __init__(
        self,
        metadata_bytes: int = 1 << 30,
        tables: int = 10_000_000,
        depth: int = 64,
        buffers: int = 10_000_000,
        decompressed_bytes: int | None = None,
        dictionary_bytes: int = 1 << 36,
        unchecked: bool = False,
    ) -> None:
        self._fix(locals())
        if not isinstance(unchecked, bool):
            raise InvalidArgument(f"Limits.unchecked must be a bool, found {shown(unchecked)}")
        for name, value in self._values().items():
            if name == "unchecked" or (name == "decompressed_bytes" and value is None):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidArgument(f"Limits.{name} must be an int of at least 1, found {shown(value)}")
        if depth > MAX_DEPTH:
            raise InvalidArgument(f"Limits.depth must be at most {MAX_DEPTH}, found {shown(depth)}")

    def most_decompressed(self, compressed: int) -> int:
        """Return the bytes that so many compressed bytes may become."""
        return max(1 << 30, 1000 * compressed) if self.decompressed_bytes is None else self.decompressed_bytes


DEFAULT_LIMITS = Limits()

MORE_MEMORY = "if you trust the data and have the memory, raise the limit, as in limits=shmarrow.Limits(...)"
"""The hint of an error about ``decompressed_bytes`` or ``dictionary_bytes``."""


def as_limits(limits: Any, unchecked: bool = False) -> Limits:
    """Return the limits of a call, with ``unchecked`` applied; InvalidType for anything else."""
    if not isinstance(limits, Limits):
        raise InvalidType(f"limits must be a shmarrow.Limits, found {shown(limits)}")
    if not isinstance(unchecked, bool):
        raise InvalidType(f"unchecked must be True or False, found {shown(unchecked)}")
    return Limits(**{**limits._values(), "unchecked": True}) if unchecked and not limits.unchecked else limits


EXPANDED_VALUES = 1 << 24
"""The most values or positions that an operation makes for slots that occupy no memory, or hardly any.

Such slots are nulls of the null type, rows of a struct without children, lists of size 0, runs, and what overlapping
list views share; their number says nothing about the size of the data. Arrays of up to so many slots are not bounded.
The limit holds for all arrays, as an operation may come long after the reader, and for arrays that no reader made.
"""


EXTRAS = {
    "jax": "jax",
    "lz4": "lz4",
    "ml_dtypes": "tensor",
    "nanoarrow": "arrow",
    "pandas": "pandas",
    "polars": "polars",
    "posix_ipc": "posix",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "scipy": "tensor",
    "shtab": "cli",
    "sparse": "sparse",
    "torch": "torch",
    "zstandard": "zstd",
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
