"""Schemas in the JSON form of Arrow's integration tests ("Integration Testing").

Rules kept here:

* the mapping from types to their JSON is data, one row a type, used in both directions;
* every member is asked for by name and kind; what is missing or of another kind ends in an :class:`InvalidData` that
  names its place as a path, such as ``schema.fields[2].type.bitWidth``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shmarrow import types
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded, Limits, Unsupported
from shmarrow.extension import extension_type, storage_field
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.ipc.schema.encode import DictionaryIds
from shmarrow.types import DataType, Field, Metadata, Schema

# --- members of objects ------------------------------------------------------------------------------------------

_KINDS = {int: "an integer", str: "a string", bool: "true or false", list: "an array", dict: "an object"}
_REQUIRED: Any = object()


def shown(value: Any) -> str:
    """A JSON value for an error message, short however large it is."""
    if isinstance(value, (dict, list)):
        return f"{_KINDS[value.__class__]} of {len(value)}"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else f"{value.bit_length()} bits"
    return text if len(text) <= 80 else f"{text[:80]}..."


def member(value: Any, key: str, kind: type, where: str, default: Any = _REQUIRED) -> Any:
    """A member of an object.

    Parameters
    ----------
    value : object
        What should be an object.
    key : str
        The name of the member.
    kind : type
        The Python class of its value.
    where : str
        The path of the object.
    default : object, optional
        What stands for a member that is missing or null; without it, both are errors.

    Raises
    ------
    InvalidData
        If there is no such member, or it is of another kind.
    """
    if value.__class__ is not dict:
        raise InvalidData(f"{where}: expected an object, found {shown(value)}")
    found = value.get(key)
    if found.__class__ is kind:
        return found
    if found is None and default is not _REQUIRED:
        return default
    if key not in value:
        raise InvalidData(f"{where}: expected a member {key!r}, found only {', '.join(list(value)[:20]) or 'none'}")
    raise InvalidData(f"{where}.{key}: expected {_KINDS[kind]}, found {shown(found)}")


# --- types -------------------------------------------------------------------------------------------------------


class Parameter(NamedTuple):
    """A parameter of a type.

    Attributes
    ----------
    key : str
        Its name in JSON.
    name : str
        Its name in Python.
    kind : type
        The class of its JSON value.
    values : dict
        For an enumeration, our values by their names in JSON.
    default : object
        What it is when it is left out.
    """

    key: str
    name: str
    kind: type
    values: dict[str, Any] = {}  # noqa: RUF012 - never changed
    default: Any = _REQUIRED


class Form(NamedTuple):
    """How a type looks in JSON.

    Attributes
    ----------
    type : type
        Its class.
    parameters : tuple of Parameter
        What its JSON object says.
    children : tuple of str
        The parameters of the class that its children are; one with a star takes all of them.
    fixed : dict
        The parameters of the class that the name in JSON implies.
    """

    type: Any
    parameters: tuple[Parameter, ...] = ()
    children: tuple[str, ...] = ()
    fixed: dict[str, Any] = {}  # noqa: RUF012 - never changed


_TIME = Parameter("unit", "unit", str, {"SECOND": "s", "MILLISECOND": "ms", "MICROSECOND": "us", "NANOSECOND": "ns"})
_DATE = Parameter("unit", "unit", str, {"DAY": "day", "MILLISECOND": "ms"})
_INTERVAL = Parameter(
    "unit", "unit", str, {"YEAR_MONTH": "month", "DAY_TIME": "day_time", "MONTH_DAY_NANO": "month_day_nano"}
)
_PRECISION = Parameter("precision", "bits", str, {"HALF": 16, "SINGLE": 32, "DOUBLE": 64})
_MODE = Parameter("mode", "mode", str, {"SPARSE": "sparse", "DENSE": "dense"})
_DIGITS = (Parameter("precision", "precision", int), Parameter("scale", "scale", int))
_BITS = Parameter("bitWidth", "bits", int)

FORMS: dict[str, Form] = {
    "null": Form(types.NullType),
    "bool": Form(types.BoolType),
    "int": Form(types.IntType, (_BITS, Parameter("isSigned", "signed", bool))),
    "floatingpoint": Form(types.FloatType, (_PRECISION,)),
    "decimal": Form(types.DecimalType, (*_DIGITS, Parameter("bitWidth", "bits", int, default=128))),
    "date": Form(types.DateType, (_DATE,)),
    "time": Form(types.TimeType, (_TIME, _BITS)),
    "timestamp": Form(types.TimestampType, (_TIME, Parameter("timezone", "tz", str, default=None))),
    "duration": Form(types.DurationType, (_TIME,)),
    "interval": Form(types.IntervalType, (_INTERVAL,)),
    "fixedsizebinary": Form(types.FixedSizeBinaryType, (Parameter("byteWidth", "width", int),)),
    "binary": Form(types.BinaryType, fixed={"text": False}),
    "utf8": Form(types.BinaryType, fixed={"text": True}),
    "largebinary": Form(types.LargeBinaryType, fixed={"text": False}),
    "largeutf8": Form(types.LargeBinaryType, fixed={"text": True}),
    "binaryview": Form(types.BinaryViewType, fixed={"text": False}),
    "utf8view": Form(types.BinaryViewType, fixed={"text": True}),
    "list": Form(types.ListType, children=("value",)),
    "largelist": Form(types.LargeListType, children=("value",)),
    "listview": Form(types.ListViewType, children=("value",)),
    "largelistview": Form(types.LargeListViewType, children=("value",)),
    "fixedsizelist": Form(types.FixedSizeListType, (Parameter("listSize", "list_size", int),), ("value",)),
    "struct": Form(types.StructType, children=("*fields",)),
    "map": Form(types.MapType, (Parameter("keysSorted", "keys_sorted", bool),), ("entries",)),
    "union": Form(types.UnionType, (_MODE, Parameter("typeIds", "type_codes", list)), ("*fields",)),
    "runendencoded": Form(types.RunEndEncodedType, children=("run_ends", "values")),
}
"""The types by their names in JSON."""

_OLDER = {f"decimal{bits}": Form(types.DecimalType, _DIGITS, fixed={"bits": bits}) for bits in (32, 64, 256)}
"""What Arrow C++ writes for decimals, which have no width of their own there."""

_NAMES = {(form.type, form.fixed.get("text")): name for name, form in FORMS.items()}


def read_type(value: Any, children: tuple[Field, ...], where: str) -> DataType:
    """A type from its JSON object and the fields of its children."""
    name = member(value, "name", str, where)
    form = FORMS.get(name) or _OLDER.get(name)
    if form is None:
        raise InvalidData(f"{where}.name: expected one of {', '.join(FORMS)}, found {shown(name)}")
    arguments = dict(form.fixed)
    for key, argument, kind, values, default in form.parameters:
        found = member(value, key, kind, where, default)
        if values and found not in values:
            raise InvalidData(f"{where}.{key}: expected one of {', '.join(values)}, found {shown(found)}")
        if kind is list and not all(item.__class__ is int for item in found):
            raise InvalidData(f"{where}.{key}: expected integers, found {shown(found)}")
        arguments[argument] = values[found] if values else found
    if form.children and form.children[0].startswith("*"):
        arguments[form.children[0][1:]] = children
    elif len(children) != len(form.children):
        raise InvalidData(f"{where}: the type {name} has {len(form.children)} children, found {len(children)}")
    else:
        arguments.update(zip(form.children, children, strict=True))
    try:
        made: DataType = form.type(**arguments)
    except (InvalidArgument, InvalidType) as error:
        raise InvalidData(f"{where}: {error}") from None
    return made


def write_type(type: DataType) -> dict[str, Any]:
    """The JSON object of a type."""
    name = _NAMES.get((type.__class__, getattr(type, "text", None)))
    if name is None:
        raise Unsupported(f"the JSON form of Arrow's integration tests has no type {type}")
    result: dict[str, Any] = {"name": name}
    for key, argument, kind, values, _ in FORMS[name].parameters:
        value = getattr(type, argument)
        if values:
            value = next(text for text, ours in values.items() if ours == value)
        if value is not None:
            result[key] = list(value) if kind is list else value
    return result


# --- fields and schemas ------------------------------------------------------------------------------------------


def read_field(value: Any, where: str, limits: Limits, depth: int = 0) -> FieldLayout:
    """A field and its children from its JSON object."""
    if depth >= limits.depth:
        raise LimitExceeded(f"{where}: types nest deeper than Limits.depth = {limits.depth}")
    name = _encodable(member(value, "name", str, where), f"{where}.name")
    nullable = member(value, "nullable", bool, where)
    items = member(value, "children", list, where, [])
    children = tuple([read_field(item, f"{where}.children[{i}]", limits, depth + 1) for i, item in enumerate(items)])
    type_value = member(value, "type", dict, where)
    type = storage = read_type(type_value, tuple([child.field for child in children]), f"{where}.type")
    metadata = read_metadata(value, where)
    encoding = member(value, "dictionary", dict, where, None)
    dictionary_id = values = None
    if encoding is not None:
        at = f"{where}.dictionary"
        dictionary_id = member(encoding, "id", int, at)
        index = member(encoding, "indexType", dict, at, None)
        index_type = types.int32() if index is None else read_type(index, (), f"{at}.indexType")
        values = FieldLayout(Field(name, type), type, None, children, None)
        children = ()
        try:
            storage = types.DictionaryType(index_type, type, member(encoding, "isOrdered", bool, at, False))
        except InvalidArgument as error:
            raise InvalidData(f"{at}.indexType: {error}") from None
    logical, metadata = extension_type(storage, metadata)
    if values is not None and logical is not storage and isinstance(logical, types.DictionaryType):
        storage = logical  # it is the values that are of an extension type
        values = values._replace(field=Field(name, logical.value_type))
    return FieldLayout(Field(name, logical, nullable, metadata), storage, dictionary_id, children, values)


def write_field(field: Field, ids: DictionaryIds) -> dict[str, Any]:
    """The JSON object of a field; dictionaries get their ids in the order in which fields are walked."""
    stored = storage_field(field)
    type = stored.type
    result: dict[str, Any] = {"name": stored.name, "nullable": stored.nullable}
    if isinstance(type, types.DictionaryType):
        result["dictionary"] = {
            "id": ids.next(),
            "indexType": write_type(type.index_type),
            "isOrdered": type.ordered,
        }
        type = storage_field(Field("", type.value_type)).type
    result["type"] = write_type(type)
    result["children"] = [write_field(child, ids) for child in type.fields]
    if stored.metadata:
        result["metadata"] = write_metadata(stored.metadata)
    return result


def read_schema(value: Any, where: str, limits: Limits) -> tuple[Schema, list[FieldLayout]]:
    """A schema, and how its columns lie in JSON."""
    items = member(value, "fields", list, where)
    wires = [read_field(item, f"{where}.fields[{i}]", limits) for i, item in enumerate(items)]
    return Schema([wire.field for wire in wires], read_metadata(value, where)), wires


def write_schema(schema: Schema) -> dict[str, Any]:
    """The JSON object of a schema."""
    ids = DictionaryIds()
    result: dict[str, Any] = {"fields": [write_field(field, ids) for field in schema]}
    if schema.metadata:
        result["metadata"] = write_metadata(schema.metadata)
    return result


# Metadata are bytes and JSON holds text: bytes that are no UTF-8 go as lone surrogates, and come back as bytes.
_ERRORS = "surrogateescape"


def read_metadata(value: Any, where: str) -> Metadata | None:
    """The metadata of a field or a schema; of two entries with one key the last."""
    result = {}
    for i, item in enumerate(member(value, "metadata", list, where, [])):
        at = f"{where}.metadata[{i}]"
        pair = [_encodable(member(item, part, str, at), f"{at}.{part}", _ERRORS) for part in ("key", "value")]
        key, text = [part.encode(errors=_ERRORS) for part in pair]
        result[key] = text
    return result or None


def write_metadata(metadata: Metadata) -> list[dict[str, str]]:
    """Metadata as pairs."""
    pairs = metadata.items()
    return [{"key": key.decode(errors=_ERRORS), "value": value.decode(errors=_ERRORS)} for key, value in pairs]


def _encodable(text: str, where: str, errors: str = "strict") -> str:
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError as error:
        raise InvalidData(f"{where}: the text {shown(text)} has no UTF-8 form: {error.reason}") from None
    return text
