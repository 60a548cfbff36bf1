"""One descriptor for each type: what the formats call it and which parameters they state (Schema.fbs, "Data Types").

:data:`TYPES` feeds the schema reader and writer, the JSON form of the integration tests, the format strings of the C
data interface, the hand-over to pyarrow, the elements of tensors, and the inference from numpy dtypes. Rules kept here:

* a class of types names its descriptors when it is defined, so that a class without one, a descriptor without a class,
  and a descriptor that two classes name are errors at import;
* what follows from something else is not stated: the name in JSON is that of the Type union in lower case.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import InvalidArgument, shown

REQUIRED: Any = object()
"""Stands for a default where there is none."""


class Enumeration:
    """An enumeration of Schema.fbs, whose numbers count from 0.

    Attributes
    ----------
    name : str
        Its name in Schema.fbs.
    numbers : dict of str to int
        The numbers of its members in Schema.fbs.
    values : tuple
        The values of the parameter, by number.
    labels : dict of str to object
        The values by their names in JSON.
    letters : str
        The letter of each value in a format string of the C data interface.
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
        The attribute of the type, and the argument of its class.
    slot : str
        The slot of its FlatBuffers table.
    kind : str or Enumeration
        What the slot holds: ``i4``, ``bool``, ``string``, ``[i4]`` or a value of an enumeration.
    default : object
        What a scalar slot that is absent stands for.
    json : str
        The member of its JSON object, where it is named otherwise than the slot.
    optional : object
        What a JSON object without the member means, and a format string that leaves it out.
    choices : tuple
        All values, where they are few.
    """

    name: str
    slot: str
    kind: str | Enumeration
    default: Any = 0
    json: str = ""
    optional: Any = REQUIRED
    choices: tuple[Any, ...] = ()

    def all_choices(self) -> tuple[Any, ...]:
        """All values where they are few, else none."""
        if isinstance(self.kind, Enumeration):
            return self.kind.values
        return (True, False) if self.kind == "bool" else self.choices


ALL = ("*fields",)
"""The children of a type that takes any number of them."""


class TypeDescriptor(NamedTuple):
    """What there is to say of a type, or of one of the two types of a class.

    Attributes
    ----------
    member : str
        Its name in the Type union of Schema.fbs, and that of its table there.
    layouts : tuple of str
        The entries of the buffer listing that types of this kind have.
    format : str
        The format string of the C data interface with parameters in braces, or attributes of the type ``t``. Of two
        separated by ``|`` the first is that of types whose optional parameters may be left out.
    factory : str
        The function, here and in pyarrow, that makes the type, with attributes of the type in braces.
    arguments : tuple of str
        The attributes of the type that are its arguments.
    parameters : tuple of Parameter
        In the order of the slots.
    children : tuple of str
        The arguments of the class that its child fields are; :data:`ALL` for any number.
    implied : dict
        The arguments of the class that the member implies.
    values : str
        Of what kind the values in its values buffer are: what Python and JSON have for them.
    storage : callable or None
        The dtype of a slot of the values buffer, from the type; None where there is no such buffer.
    numpy : callable or None
        The dtype of the arrays that numpy users get without a copy, from the type.
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
        """Its name in the JSON form of the integration tests."""
        return self.member.lower().rstrip("_")

    def make(self, parameters: dict[str, Any], children: Sequence[Any] = ()) -> Any:
        """The type with these parameters, by name, and these child fields.

        Raises
        ------
        InvalidArgument
            If the class refuses the parameters, or the number of children is another.
        """
        if self.children == ALL:
            arguments: dict[str, Any] = {"fields": children}
        elif len(children) == len(self.children):
            arguments = dict(zip(self.children, children, strict=True))
        else:
            expected = len(self.children)
            raise InvalidArgument(
                f"the number of child fields of {self.json_name} is {expected}, found {len(children)}"
            )
        return CLASSES[self.member](**self.implied, **parameters, **arguments)

    def call(self, type: Any) -> tuple[str, list[Any]]:
        """The name of the factory that makes a type, and its arguments."""
        return self.factory.format(t=type), [getattr(type, name) for name in self.arguments]

    def instances(self) -> Iterator[Any]:
        """All types of this kind, where there are few."""
        if self.children:
            return
        names = [parameter.name for parameter in self.parameters]
        for values in itertools.product(*[parameter.all_choices() for parameter in self.parameters]):
            try:
                yield self.make(dict(zip(names, values, strict=True)))
            except InvalidArgument:  # these parameters do not go together
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
    """A storage that is the dtype for numpy users too."""
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
"""The members of the Type union, in its order."""

DICTIONARY = TypeDescriptor(
    "DictionaryEncoding", ("dictionary",), "{t.index_type.format}", "dictionary",
    ("index_type", "value_type", "ordered"), values="index",
)  # fmt: skip
"""Dictionary encoding, which is no member of the Type union: a field has it beside the type of its values."""

BY_MEMBER = {descriptor.member: descriptor for descriptor in (*TYPES, DICTIONARY)}


class _Classes(dict[str, Any]):
    def __missing__(self, member: str) -> Any:
        raise TypeError(f"no class has the descriptors {[member]}")


CLASSES: dict[str, Any] = _Classes()
"""The class of each member; filled by the classes as they are defined."""


def claim(made: Any, members: Sequence[str]) -> tuple[TypeDescriptor, ...]:
    """The descriptors of a class that is being defined.

    Raises
    ------
    TypeError
        If it has none, one that does not exist, or one that another class has.
    """
    wrong = [member for member in members if member not in BY_MEMBER or member in CLASSES]
    if wrong or not members:
        raise TypeError(f"{made.__name__} needs descriptors of its own in TYPES, found {wrong or 'none'}")
    CLASSES.update(dict.fromkeys(members, made))
    return tuple([BY_MEMBER[member] for member in members])


def check_complete() -> None:
    """Check that every descriptor has its class; TypeError where one is missing."""
    missing = BY_MEMBER.keys() - CLASSES.keys()
    if missing:
        raise TypeError(f"no class has the descriptors {sorted(missing)}")


@functools.cache
def simple_types() -> dict[str, Any]:
    """The types without children and with few values of their parameters, by their format strings."""
    return {type.format: type for descriptor in TYPES for type in descriptor.instances()}


@functools.cache
def _templates() -> list[tuple[re.Pattern[str], list[str], TypeDescriptor]]:
    """Patterns of the other format strings, and the parameters in their groups."""
    found = []
    simple = {type.descriptor.member for type in simple_types().values()}
    for descriptor in TYPES:
        kinds: dict[str, Any] = {parameter.name: parameter.kind for parameter in descriptor.parameters}
        for template in descriptor.format.split("|") if descriptor.member not in simple else ():
            literals, names = re.split(r"\{\w+\}", template), re.findall(r"\{(\w+)\}", template)
            groups = [f"({_PATTERNS.get(kinds[name]) or f'[{kinds[name].letters}]'})" for name in names]
            pattern = "".join([a + b for a, b in zip(map(re.escape, literals), [*groups, ""], strict=True)])
            found.append((re.compile(pattern, re.DOTALL), names, descriptor))
    return found


def parse_format(text: str, children: Sequence[Any] = (), **stated: Any) -> Any:
    """The type of a format string of the C data interface ("Data type description -- format strings").

    Parameters
    ----------
    text : str
        The format string; that of a dictionary-encoded field is the one of its indices.
    children : sequence of Field
        The child fields.
    **stated
        Parameters that the interface states elsewhere, such as ``keys_sorted``; those of other types are left out.

    Raises
    ------
    InvalidArgument
        If there is no such type.
    """
    found = simple_types().get(text)
    if found is not None and not children:
        return found
    for pattern, names, descriptor in _templates():
        match = pattern.fullmatch(text)
        if match is not None:
            parameters = {each.name: each for each in descriptor.parameters}
            arguments = {name: each.optional for name, each in parameters.items() if each.optional is not REQUIRED}
            arguments |= {name: value for name, value in stated.items() if name in parameters}
            for name, value in zip(names, match.groups(), strict=True):
                arguments[name] = _from_format(parameters[name].kind, value)
            return descriptor.make(arguments, children)
    raise InvalidArgument(f"no type has the format string {shown(text)} and {len(children)} children")
