# SPDX-License-Identifier: Apache-2.0
"""Type descriptors: each type's names and parameters in the serialized formats (Schema.fbs, "Data Types").

:data:`TYPES` drives the schema reader and writer, the integration-test JSON, the C data interface's format strings,
the conversion to pyarrow, tensor elements, and inference from numpy dtypes. Invariants:

* a type class claims its descriptors when it is defined, so that a class without a descriptor, an unclaimed descriptor
  and a descriptor claimed twice are errors at import;
* nothing derivable is stated: the name in JSON is that of the Type union in lower case.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import InvalidArgument, shown

REQUIRED: Any = object()
"""Sentinel for "no default"."""


class Enumeration:
    """An enumeration of Schema.fbs, numbered from 0.

    Attributes
    ----------
    name : str
        Name in Schema.fbs.
    numbers : dict of str to int
        Numbers of the members in Schema.fbs.
    values : tuple
        Parameter values, by number.
    labels : dict of str to object
        Parameter values, by name in JSON.
    letters : str
        Letter of each value in a C data interface format string.
    """

    __slots__ = ("labels", "letters", "name", "numbers", "values")

    def __init__(self, name: str, *members: tuple[Any, str, str]) -> None:
        self.name = name
        self.values, names, letters = zip(*members, strict=True)
        self.numbers = {member: number for number, member in enumerate(names)}
        self.labels = {member.upper(): value for member, value in zip(names, self.values, strict=True)}
        self.letters = "".join(letters)


TIME_UNIT = Enumeration(
    "TimeUnit", ("s", "SECOND", "s"), ("ms", "MILLISECOND", "m"), ("us", "MICROSECOND", "u"), ("ns", "NANOSECOND", "n")
)
DATE_UNIT = Enumeration("DateUnit", ("day", "DAY", "D"), ("ms", "MILLISECOND", "m"))
INTERVAL_UNIT = Enumeration(
    "IntervalUnit",
    ("month", "YEAR_MONTH", "M"),
    ("day_time", "DAY_TIME", "D"),
    ("month_day_nano", "MONTH_DAY_NANO", "n"),
)
UNION_MODE = Enumeration("UnionMode", ("sparse", "Sparse", "s"), ("dense", "Dense", "d"))
PRECISION = Enumeration("Precision", (16, "HALF", "e"), (32, "SINGLE", "f"), (64, "DOUBLE", "g"))

ENUMERATIONS = (TIME_UNIT, DATE_UNIT, INTERVAL_UNIT, UNION_MODE, PRECISION)


class Parameter(NamedTuple):
    """A parameter of a type.

    Attributes
    ----------
    name : str
        Attribute of the type and argument of its class.
    slot : str
        Slot of its FlatBuffers table.
    kind : str or Enumeration
        Kind of the slot: ``i4``, ``bool``, ``string``, ``[i4]`` or an enumeration.
    default : object
        Value of an absent scalar slot.
    json : str
        Member of its JSON object, if named differently from the slot.
    optional : object
        Value if missing from a JSON object or format string.
    choices : tuple
        All values, if few.
    """

    name: str
    slot: str
    kind: str | Enumeration
    default: Any = 0
    json: str = ""
    optional: Any = REQUIRED
    choices: tuple[Any, ...] = ()

    def all_choices(self) -> tuple[Any, ...]:
        """All values if few, else empty."""
        if isinstance(self.kind, Enumeration):
            return self.kind.values
        return (True, False) if self.kind == "bool" else self.choices


ALL = ("*fields",)
"""The children of a type with any number of them."""


class TypeDescriptor(NamedTuple):
    """Description of a type, or of one of the two types of a class.

    Attributes
    ----------
    member : str
        Name in the Type union of Schema.fbs, and of its table there.
    layouts : tuple of str
        Possible physical layouts.
    format : str
        C data interface format string with parameters, or attributes of the type ``t``, in braces. Of two separated
        by ``|``, the first is for types whose optional parameters are omitted.
    factory : str
        Name of the factory function, here and in pyarrow, with attributes of the type in braces.
    arguments : tuple of str
        The factory's arguments, as attributes of the type.
    parameters : tuple of Parameter
        Parameters in slot order.
    children : tuple of str
        Class arguments that the child fields are passed as; :data:`ALL` for any number.
    implied : dict
        Class arguments implied by the member.
    values : str
        Kind of the values in the values buffer, which selects their Python and JSON forms.
    storage : callable or None
        Function from the type to the dtype of a values-buffer slot; None without such a buffer.
    numpy : callable or None
        Function from the type to the dtype of a zero-copy ``to_numpy()``.
    """

    member: str
    layouts: tuple[str, ...]
    format: str
    factory: str
    arguments: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    children: tuple[str, ...] = ()
    implied: dict[str, Any] = {}  # noqa: RUF012 - never changed
    values: str = ""
    storage: Callable[[Any], Any] | None = None
    numpy: Callable[[Any], Any] | None = None

    @property
    def json_name(self) -> str:
        """Name in the integration-test JSON."""
        return self.member.lower().rstrip("_")

    def make(self, parameters: dict[str, Any], children: Sequence[Any] = ()) -> Any:
        """Create the type with these parameters, by name, and these child fields.

        Raises
        ------
        InvalidArgument
            If the parameters are invalid, or the number of children is wrong.
        """
        if self.children == ALL:
            arguments: dict[str, Any] = {"fields": children}
        elif len(children) == len(self.children):
            arguments = dict(zip(self.children, children, strict=True))
        else:
            expected = len(self.children)
            raise InvalidArgument(f"{self.json_name} must have {expected} child fields, found {len(children)}")
        return CLASSES[self.member](**self.implied, **parameters, **arguments)

    def call(self, type: Any) -> tuple[str, list[Any]]:
        """The name of a type's factory, and its arguments."""
        return self.factory.format(t=type), [getattr(type, name) for name in self.arguments]

    def instances(self) -> Iterator[Any]:
        """All types of this kind, if few."""
        if self.children:
            return
        names = [parameter.name for parameter in self.parameters]
        for values in itertools.product(*[parameter.all_choices() for parameter in self.parameters]):
            try:
                yield self.make(dict(zip(names, values, strict=True)))
            except InvalidArgument:  # an invalid combination
                continue

    def format_of(self, type: Any) -> str:
        """The format string of a type."""
        short, _, full = self.format.partition("|")
        stated = [each for each in self.parameters if each.optional not in (REQUIRED, getattr(type, each.name))]
        text = {each.name: _to_format(each.kind, getattr(type, each.name)) for each in self.parameters}
        return (full if full and stated else short).format(t=type, **text)


_PATTERNS: dict[Any, str] = {"i4": "-?[0-9]{1,10}", "string": ".*", "[i4]": "(?:[0-9]{1,10}(?:,[0-9]{1,10})*)?"}


def _to_format(kind: Any, value: Any) -> str:
    if isinstance(kind, Enumeration):
        return kind.letters[kind.values.index(value)]
    return ",".join(map(str, value)) if kind == "[i4]" else "" if value is None else str(value)


def _from_format(kind: Any, text: str) -> Any:
    if isinstance(kind, Enumeration):
        return kind.values[kind.letters.index(text)]
    if kind == "[i4]":
        return tuple(map(int, filter(None, text.split(","))))
    return int(text) if kind == "i4" else text or None


_TIME = Parameter("unit", "unit", TIME_UNIT, 1)
_INTERVALS = {
    "month": np.dtype("<i4"),
    "day_time": np.dtype([("days", "<i4"), ("milliseconds", "<i4")]),
    "month_day_nano": np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")]),
}


def _both(dtype: Callable[[Any], Any]) -> Any:
    """The same dtype for the values buffer and for ``to_numpy()``."""
    return {"storage": dtype, "numpy": dtype}


def _bytes(member: str, layout: str, format: str, factory: str, text: bool) -> TypeDescriptor:
    return TypeDescriptor(member, (layout,), format, factory, implied={"text": text})


def _list(member: str, layout: str, format: str, factory: str = "") -> TypeDescriptor:
    return TypeDescriptor(member, (layout,), format, factory or layout, ("value_field",), children=("value",))


TYPES: tuple[TypeDescriptor, ...] = (
    TypeDescriptor("Null", ("null",), "n", "null"),
    TypeDescriptor(
        "Int", ("primitive",), "{t.letter}", "{t}", values="integer",
        parameters=(
            Parameter("bits", "bitWidth", "i4", choices=(8, 16, 32, 64)),
            Parameter("signed", "is_signed", "bool", False, "isSigned"),
        ),
        **_both(lambda t: f"<{'i' if t.signed else 'u'}{t.bits // 8}"),
    ),
    TypeDescriptor(
        "FloatingPoint", ("primitive",), "{bits}", "float{t.bits}", values="float",
        parameters=(Parameter("bits", "precision", PRECISION),),
        **_both(lambda t: f"<f{t.bits // 8}"),
    ),
    _bytes("Binary", "binary", "z", "binary", False),
    _bytes("Utf8", "binary", "u", "string", True),
    TypeDescriptor("Bool", ("bool",), "b", "bool_", values="bool"),
    TypeDescriptor(
        "Decimal", ("primitive",), "d:{precision},{scale}|d:{precision},{scale},{bits}", "decimal{t.bits}",
        ("precision", "scale"), values="decimal",
        parameters=(
            Parameter("precision", "precision", "i4"),
            Parameter("scale", "scale", "i4"),
            Parameter("bits", "bitWidth", "i4", 128, optional=128),
        ),
        storage=lambda t: f"<i{t.bits // 8}" if t.bits <= 64 else ("<u8", (t.bits // 64,)),
    ),
    TypeDescriptor(
        "Date", ("primitive",), "td{unit}", "date{t.bit_width}", values="date",
        parameters=(Parameter("unit", "unit", DATE_UNIT, 1),),
        storage=lambda t: "<i4" if t.unit == "day" else "<i8",
        numpy=lambda t: None if t.unit == "day" else "<M8[ms]",
    ),
    TypeDescriptor(
        "Time", ("primitive",), "tt{unit}", "time{t.bits}", ("unit",), values="time",
        parameters=(_TIME, Parameter("bits", "bitWidth", "i4", 32, choices=(32, 64))),
        storage=lambda t: f"<i{t.bits // 8}",
    ),
    TypeDescriptor(
        "Timestamp", ("primitive",), "ts{unit}:{tz}", "timestamp", ("unit", "tz"), values="timestamp",
        parameters=(_TIME._replace(default=0), Parameter("tz", "timezone", "string", optional=None)),
        storage=lambda t: "<i8",
        numpy=lambda t: f"<M8[{t.unit}]",
    ),
    TypeDescriptor(
        "Interval", ("primitive",), "ti{unit}", "{t.unit}_interval", values="interval",
        parameters=(Parameter("unit", "unit", INTERVAL_UNIT),),
        **_both(lambda t: _INTERVALS[t.unit]),
    ),
    _list("List", "list", "+l", "list_"),
    TypeDescriptor("Struct_", ("struct",), "+s", "struct", ("fields",), children=ALL),
    TypeDescriptor(
        "Union", ("sparse_union", "dense_union"), "+u{mode}:{type_codes}", "union", ("fields", "mode", "type_codes"),
        parameters=(Parameter("mode", "mode", UNION_MODE), Parameter("type_codes", "typeIds", "[i4]")),
        children=ALL,
    ),
    TypeDescriptor(
        "FixedSizeBinary", ("primitive",), "w:{width}", "binary", ("width",), values="bytes",
        parameters=(Parameter("width", "byteWidth", "i4"),),
        **_both(lambda t: f"V{t.width}"),
    ),
    TypeDescriptor(
        "FixedSizeList", ("fixed_size_list",), "+w:{list_size}", "list_", ("value_field", "list_size"),
        parameters=(Parameter("list_size", "listSize", "i4"),), children=("value",),
    ),
    TypeDescriptor(
        "Map", ("map",), "+m", "map_", ("key_field", "item_field", "keys_sorted"),
        parameters=(Parameter("keys_sorted", "keysSorted", "bool", False),), children=("entries",),
    ),
    TypeDescriptor(
        "Duration", ("primitive",), "tD{unit}", "duration", ("unit",), values="timedelta",
        parameters=(_TIME,),
        storage=lambda t: "<i8",
        numpy=lambda t: f"<m8[{t.unit}]",
    ),
    _bytes("LargeBinary", "large_binary", "Z", "large_binary", False),
    _bytes("LargeUtf8", "large_binary", "U", "large_string", True),
    _list("LargeList", "large_list", "+L"),
    TypeDescriptor(
        "RunEndEncoded", ("run_end_encoded",), "+r", "run_end_encoded", ("run_end_type", "value_type"),
        children=("run_ends", "values"),
    ),
    _bytes("BinaryView", "binary_view", "vz", "binary_view", False),
    _bytes("Utf8View", "binary_view", "vu", "string_view", True),
    _list("ListView", "list_view", "+vl"),
    _list("LargeListView", "large_list_view", "+vL"),
)  # fmt: skip
"""The members of the Type union, in order."""

DICTIONARY = TypeDescriptor(
    "DictionaryEncoding", ("dictionary",), "{t.index_type.format}", "dictionary",
    ("index_type", "value_type", "ordered"), values="index",
)  # fmt: skip
"""Dictionary encoding: not a member of the Type union, but a property of a field in addition to its value type."""

BY_MEMBER = {descriptor.member: descriptor for descriptor in (*TYPES, DICTIONARY)}


class _Classes(dict[str, Any]):
    def __missing__(self, member: str) -> Any:
        raise TypeError(f"no class has the descriptors {[member]}")


CLASSES: dict[str, Any] = _Classes()
"""The class of each member; filled as the classes are defined."""


def claim(maker: Any, members: Sequence[str]) -> tuple[TypeDescriptor, ...]:
    """Claim the descriptors for a class that is being defined.

    Raises
    ------
    TypeError
        If none are named, or one is unknown or already claimed.
    """
    wrong = [member for member in members if member not in BY_MEMBER or member in CLASSES]
    if wrong or not members:
        raise TypeError(f"{maker.__name__} needs descriptors of its own in TYPES, found {wrong or 'none'}")
    CLASSES.update(dict.fromkeys(members, maker))
    return tuple([BY_MEMBER[member] for member in members])


def check_complete() -> None:
    """Check that every descriptor is claimed; TypeError if not."""
    missing = BY_MEMBER.keys() - CLASSES.keys()
    if missing:
        raise TypeError(f"no class has the descriptors {sorted(missing)}")


@functools.cache
def simple_types() -> dict[str, Any]:
    """Types without children and with few parameter values, by format string."""
    return {type.format: type for descriptor in TYPES for type in descriptor.instances()}


@functools.cache
def _templates() -> list[tuple[re.Pattern[str], list[str], TypeDescriptor]]:
    """Patterns of the other format strings, with the parameters of their groups."""
    rows = []
    simple = {type.descriptor.member for type in simple_types().values()}
    for descriptor in TYPES:
        kinds: dict[str, Any] = {parameter.name: parameter.kind for parameter in descriptor.parameters}
        for template in descriptor.format.split("|") if descriptor.member not in simple else ():
            literals, names = re.split(r"\{\w+\}", template), re.findall(r"\{(\w+)\}", template)
            groups = [f"({_PATTERNS.get(kinds[name]) or f'[{kinds[name].letters}]'})" for name in names]
            pattern = "".join([a + b for a, b in zip(map(re.escape, literals), [*groups, ""], strict=True)])
            rows.append((re.compile(pattern, re.DOTALL), names, descriptor))
    return rows


def parse_format(text: str, children: Sequence[Any] = (), **stated: Any) -> Any:
    """Parse a format string of the C data interface ("Data type description -- format strings").

    Parameters
    ----------
    text : str
        The format string; for a dictionary-encoded field, that of its indices.
    children : sequence of Field
        The child fields.
    **stated
        Parameters that the interface passes elsewhere, such as ``keys_sorted``; those of other types are ignored.

    Raises
    ------
    InvalidArgument
        If the format string is unknown or does not fit the children.
    """
    type = simple_types().get(text)
    if type is not None and not children:
        return type
    for pattern, names, descriptor in _templates():
        match = pattern.fullmatch(text)
        if match is not None:
            parameters = {each.name: each for each in descriptor.parameters}
            arguments = {name: each.optional for name, each in parameters.items() if each.optional is not REQUIRED}
            arguments |= {name: value for name, value in stated.items() if name in parameters}
            for name, value in zip(names, match.groups(), strict=True):
                arguments[name] = _from_format(parameters[name].kind, value)
            return descriptor.make(arguments, children)
    raise InvalidArgument(f"unknown format string {shown(text)} for a type with {len(children)} children")
