# SPDX-License-Identifier: Apache-2.0
"""Columns, index and labels of a pandas DataFrame, and the metadata to restore it.

The metadata follow pandas' developer guide, "Storing pandas DataFrame objects in Apache Parquet format": JSON under the
key ``pandas`` of a schema, as pyarrow and pandas use in Parquet and Feather files. What that format cannot tell stands
beside it, where others do not look: ``shmarrow`` in the entry of a column has its dtype, and at the top the labels,
names and attributes that are not text. A frame that neither describes exactly is refused.

Labels, names and attributes are JSON, exactly: what JSON lacks becomes ``{"$Kind": parts}``. A value either comes back
equal and of its own class, or is refused when it is written.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shmarrow.casts import kinds_of
from shmarrow.errors import FieldNotFound, InvalidArgument, InvalidType, at, full_name, not_expected, shown
from shmarrow.types import DataType, Schema
from shmarrow.types.primitive import zone_name


def to_json(value: Any) -> Any:
    """Return a value as JSON; InvalidType if it has no exact form."""
    kind = value.__class__
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [to_json(item) for item in value]
    if kind is dict and all(key.__class__ is str and key[:1] != "$" for key in value):
        return {key: to_json(item) for key, item in value.items()}
    form = _FORMS.get(kind.__name__)
    if form is None or kind.__module__.partition(".")[0] not in _MODULES:
        if not isinstance(value, np.generic) or value.dtype.kind not in "biuf" or kind is np.longdouble:
            raise InvalidType(f"{full_name(value)} has no exact form in JSON")
        return {"$numpy": [value.dtype.str, to_json(value.item())]}
    return {f"${kind.__name__}": form[0](value)}


def from_json(value: Any) -> Any:
    """Return the value that :func:`to_json` wrote."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if name[:1] != "$":
        return {key: from_json(item) for key, item in value.items()}
    parts = value[name]
    return np.dtype(parts[0]).type(from_json(parts[1])) if name == "$numpy" else _FORMS[name[1:]][1](parts)


def _aware(value: dt.datetime | dt.time) -> str:
    if value.tzinfo is not None:
        raise InvalidType(f"{full_name(value)} with a time zone has no exact form in JSON; use pandas.Timestamp")
    return value.isoformat()


def _pandas(name: str) -> Any:
    """A class of pandas, which whoever has its values or reads them has imported."""
    return getattr(sys.modules["pandas"], name)


def _count(value: Any) -> list[Any]:
    """The count and the unit of a Timestamp or a Timedelta."""
    return [int(value.asm8.astype(np.int64)), value.unit]


def _moment(value: Any) -> list[Any]:
    return [*_count(value), None if value.tz is None else zone_name(value.tz)]


def _read_moment(parts: Any) -> Any:
    moment = _pandas("Timestamp")(np.datetime64(parts[0], parts[1]))
    return moment if parts[2] is None else moment.tz_localize("UTC").tz_convert(parts[2])


_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float": (repr, float),
    "tuple": (lambda value: to_json(list(value)), lambda parts: tuple(from_json(parts))),
    "set": (lambda value: to_json(list(value)), lambda parts: set(from_json(parts))),
    "dict": (
        lambda value: [to_json(list(item)) for item in value.items()],
        lambda parts: dict(map(from_json, parts)),
    ),
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "time": (_aware, dt.time.fromisoformat),
    "datetime": (_aware, dt.datetime.fromisoformat),
    "timedelta": (lambda value: [value.days, value.seconds, value.microseconds], lambda parts: dt.timedelta(*parts)),
    "Decimal": (str, decimal.Decimal),
    "UUID": (str, uuid.UUID),
    "Timestamp": (_moment, _read_moment),
    "Timedelta": (_count, lambda parts: _pandas("Timedelta")(np.timedelta64(*parts))),
    "Period": (
        lambda value: [value.ordinal, value.freqstr],
        lambda parts: _pandas("Period")(ordinal=parts[0], freq=parts[1]),
    ),
    "Interval": (
        lambda value: [to_json(value.left), to_json(value.right), value.closed],
        lambda parts: _pandas("Interval")(from_json(parts[0]), from_json(parts[1]), parts[2]),
    ),
    "NaTType": (lambda value: None, lambda parts: _pandas("NaT")),
    "NAType": (lambda value: None, lambda parts: _pandas("NA")),
}
"""How values of a class are written and read, by the name of the class."""

_MODULES = {"builtins", "datetime", "decimal", "_decimal", "uuid", "pandas"}


# --- columns and index --------------------------------------------------------------------------------------------

OWN = "shmarrow"
"""The key of what we add to the metadata, and to the entries of columns in them."""


class FrameColumn(NamedTuple):
    """A column of a frame, or a level of its index.

    Attributes
    ----------
    name : str
        Name of the field.
    label : str or None
        Label in pandas, as a string; None if it has no name.
    values : Series or Index
        The values.
    """

    name: str
    label: str | None
    values: Any


class Frame(NamedTuple):
    """The parts of a frame to store.

    Attributes
    ----------
    columns, levels : sequence of FrameColumn
        Columns, and the index levels that become columns.
    described : list
        Index description for the metadata: field names, or a range.
    index, labels : Index
        Labels of the rows and of the columns.
    attributes : dict
        ``frame.attrs``.
    """

    columns: Sequence[FrameColumn]
    levels: Sequence[FrameColumn]
    described: list[Any]
    index: Any
    labels: Any
    attributes: Any

    def metadata(self, types: Iterable[DataType], exact: bool) -> bytes:
        """Return the metadata, given the types of the columns and then the levels.

        ``exact`` adds the dtypes of values that were not cast to types of the caller's.
        """
        described = zip([*self.columns, *self.levels], types, strict=True)
        levels = getattr(self.labels, "levels", [self.labels])
        attributes = _attributes(self.attributes)
        found = {
            "index_columns": self.described,
            "column_indexes": [_labels(*each) for each in zip(levels, self.labels.names, strict=True)],
            "columns": [_column(column, type, exact) for column, type in described],
            "attributes": attributes if attributes == self.attributes else {},
            "creator": {"library": "shmarrow", "version": sys.modules["shmarrow"].__version__},
            "pandas_version": getattr(sys.modules.get("pandas"), "__version__", None),
            OWN: {
                "labels": None if _are_plain(self.labels) else labels_form(self.labels),
                "names": _names(self.index) if self.described else None,
                "multiple": hasattr(self.index, "levels"),
                "freq": _frequency(self.index),
                "attributes": None if attributes == self.attributes else attributes,
            },
        }
        found[OWN] = {key: value for key, value in found[OWN].items() if value}
        return json.dumps(found).encode()


def read_frame(frame: Any, schema: Schema | None, preserve_index: bool | None, columns: Sequence[Any] | None) -> Frame:
    """Split a frame into columns and index levels; copies nothing.

    Parameters
    ----------
    frame : pandas.DataFrame
        The frame.
    schema : Schema, optional
        If given, index levels become columns only if it names them.
    preserve_index : bool, optional
        Whether index levels become columns; None means all but a ``RangeIndex``, which is stored as metadata only.
    columns : sequence of labels, optional
        Columns to include, by default all.

    Raises
    ------
    FieldNotFound
        If one of ``columns`` is missing.
    InvalidType
        If ``columns`` is a single label.
    """
    if columns is not None:
        if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
            raise not_expected("a sequence of labels", columns)
        try:
            frame = frame[list(columns)]
        except (KeyError, TypeError) as error:
            raise FieldNotFound(f"the frame lacks some of the columns: {error}") from None
    try:
        set(frame.columns)
    except TypeError as error:
        raise InvalidType(f"pandas makes no column of such a label: {error}") from None
    made = [FrameColumn(str(_text(label)), _text(label), values) for label, values in frame.items()]
    names = {column.name for column in made}
    levels: list[FrameColumn] = []
    described: list[Any] = []
    index = frame.index
    if preserve_index is None and index.__class__.__name__ == "RangeIndex":
        name = _text(index.name)
        described.append({"kind": "range", "name": name, "start": index.start, "stop": index.stop, "step": index.step})
    elif preserve_index is not False:
        for i, (label, values) in enumerate(zip(index.names, _levels(index), strict=True)):
            name = _text(label)
            if name is None or name in names:
                name = _free_name(i, names)
            if schema is None or name in schema:
                levels.append(FrameColumn(name, _text(label), values))
                described.append(name)
                names.add(name)
    return Frame(made, levels, described, index, frame.columns, getattr(frame, "attrs", {}))


def _free_name(level: int, names: set[str]) -> str:
    while f"__index_level_{level}__" in names:
        level += 1
    return f"__index_level_{level}__"


def _text(label: Any) -> str | None:
    """A label as a string; a tuple becomes the string of a tuple of strings, which readers parse."""
    if label is None or isinstance(label, str):
        return label
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    return str(tuple(map(_text, label))) if isinstance(label, tuple) else str(label)


def _labels(level: Any, name: Any) -> dict[str, Any]:
    """The metadata of the column labels, or of one level of them."""
    dtype, metadata = _dtype(level)
    kind = level.inferred_type
    if kind == "string":
        kind, metadata = "unicode", {"encoding": "UTF-8"}
    elif kind in ("boolean", "categorical", "empty"):  # readers convert "False" to True, and reject categories
        kind, dtype, metadata = "mixed", "object", None
    elif metadata is not None:
        kind = "datetimetz"
    elif dtype != "object":
        kind = dtype
    text = _text(name)
    return {"name": text, "field_name": text, "pandas_type": kind, "numpy_type": dtype, "metadata": metadata}


def _column(column: FrameColumn, type: Any, exact: bool) -> dict[str, Any]:
    """The metadata of a column."""
    dtype, metadata = _dtype(column.values)
    kind = _logical(type)
    if kind == "decimal":
        some: Any = type
        metadata = {"precision": some.precision, "scale": some.scale}
        dtype = dtype if dtype.endswith("[pyarrow]") else "object"
    entry = {
        "name": column.label, "field_name": column.name, "pandas_type": kind, "numpy_type": dtype,
        "metadata": metadata,
    }  # fmt: skip
    with at("column", column.name):
        form = dtype_form(column.values) if exact else None
    if form not in (None, dtype) and not (isinstance(form, str) and kind == "datetimetz"):
        entry[OWN] = {"dtype": form, "type": stored_type(type)}
    return entry


def stored_type(type: Any) -> str:
    """The type that a recorded dtype was stored as; of a dictionary, that of its values, as its indices may grow."""
    return str(type.value_type if type.layout == "dictionary" else type)


# --- dtypes, labels and attributes, exactly -----------------------------------------------------------------------


def dtype_form(values: Any) -> Any:
    """The dtype of a Series or Index as JSON: a name that pandas reads, or a dict whose first key is its kind.

    Raises
    ------
    InvalidType
        If the values would come back as others.
    """
    dtype = values.dtype
    kind = dtype.__class__.__name__
    if kind == "CategoricalDtype":
        categories = {"category": dtype_form(dtype.categories), "ordered": bool(dtype.ordered)}
        frequency = _frequency(dtype.categories)
        return categories if frequency is None else {**categories, "freq": frequency}
    if kind == "StringDtype":
        if _is_named(dtype, str(dtype)):
            return str(dtype)
        return {"string": dtype.storage, "nan": dtype.na_value is not sys.modules["pandas"].NA}
    if kind == "SparseDtype":
        return {"sparse": str(dtype.subtype), "fill": to_json(dtype.fill_value)}
    if kind == "IntervalDtype":
        left = getattr(values, "array", values).left
        return {"interval": dtype_form(left), "closed": dtype.closed}
    if kind == "DatetimeTZDtype":
        return f"datetime64[{dtype.unit}, {zone_name(dtype.tz)}]"
    return _objects(np.asarray(values, object)) if str(dtype) == "object" else _dtype(values)[0]


def _objects(values: Any) -> dict[str, Any]:
    """The form of objects: the names of their classes, and the value that stands for a missing one."""
    absent = np.asarray(sys.modules["pandas"].isna(values), bool)
    missing = {json.dumps(to_json(value)) for value in values[absent].tolist()}
    if len(missing) > 1:
        raise InvalidType(
            "its missing values are of several kinds, which would come back as one",
            hint="column.where(column.notna(), None) makes all of them None",
        )
    present = values[~absent].tolist()
    kinds = kinds_of(present)
    items = _check_classes(present, kinds)
    if any(hasattr(kind, "tzinfo") and hasattr(kind, "year") for kind in kinds):
        zones = {str(value.tzinfo) for value in present}
        if len(zones) > 1:
            raise InvalidType(
                f"its timestamps are of several time zones: {', '.join(sorted(zones)[:4])}",
                hint="pandas.to_datetime(column, utc=True) makes them one",
            )
    form = {"object": sorted(kind.__name__ for kind in kinds), "missing": json.loads(next(iter(missing), "null"))}
    return {**form, "items": items} if items else form


def _check_classes(values: Sequence[Any], kinds: set[Any], depth: int = 0) -> str | None:
    """Raise unless objects come back equal, and of their classes: a column, a list or a key has values of one class.

    Returns the class of pandas' that the elements of lists have, which are restored to it.
    """
    kinds = kinds - {type(None)}
    name = ", ".join(sorted(kind.__name__ for kind in kinds))
    others = {kind for kind in kinds if not issubclass(kind, _NUMBERS) or kind is np.timedelta64}
    of_pandas = depth == 1 and name in ("Timestamp", "Timedelta")
    if others and (len(kinds) > 1 or not (depth == 0 or of_pandas or kinds <= _NESTED)):
        text = f"its {'lists or dicts hold' if depth else 'objects are'} {name}, which would come back as another class"
        raise InvalidType(text, hint=_BY_SCHEMA)
    if kinds & {list, tuple, set, frozenset}:
        items = list(chain.from_iterable(value for value in values if value is not None))
        return _check_classes(items, kinds_of(items), depth + 1)
    if kinds == {dict}:
        rows = [value for value in values if value is not None]
        if len(set(map(tuple, rows))) > 1:
            raise InvalidType("its dicts have different keys, and would come back with all of them", hint=_BY_SCHEMA)
        for key in rows[0]:
            items = [row[key] for row in rows]
            _check_classes(items, kinds_of(items), depth + 2)
    return name if of_pandas else None


_BY_SCHEMA = "Table.from_pandas(frame, schema) stores them as the schema says"
_NUMBERS = (int, float, np.integer, np.floating, decimal.Decimal)
"""Classes of numbers, which are equal whatever their class."""
_NESTED = {str, bytes, dt.date, dt.time, dt.datetime, dt.timedelta, uuid.UUID, list, dict}
"""Classes of what comes back as it was in a list or a dict."""


def labels_form(labels: Any) -> Any:
    """The labels of columns, a level of them, or their categories, as JSON."""
    if hasattr(labels, "levels"):
        levels = [labels_form(level) for level in _levels(labels)]
        return {"levels": levels, "names": _names(labels)}
    kind = labels.dtype.__class__.__name__
    form: dict[str, Any] = {"names": _names(labels), "freq": _frequency(labels)}
    if labels.__class__.__name__ == "RangeIndex":
        return {**form, "range": [labels.start, labels.stop, labels.step]}
    if kind == "CategoricalDtype":
        categories = labels_form(labels.categories)
        return {**form, "codes": labels.codes.tolist(), "categories": categories, "ordered": bool(labels.dtype.ordered)}
    dtype: Any = {"object": []} if str(labels.dtype) == "object" else dtype_form(labels)
    with at("the labels of the columns"):
        if kind == "ArrowDtype" and not _is_named(labels.dtype, dtype):
            raise InvalidType(f"pandas cannot make labels of {dtype} by that name", hint="use labels of another dtype")
        values = [to_json(label) for label in labels]
        if kind in ("ArrowDtype", "Float32Dtype", "Float64Dtype") and any(
            isinstance(label, (float, np.floating)) and label != label for label in labels
        ):
            raise InvalidType(f"NaN is a value in {dtype}, of which pandas makes no labels", hint="use float64")
    return {**form, "dtype": dtype, "values": values}


def _are_plain(labels: Any) -> bool:
    """Whether labels are text of pandas' own dtype, which the names of the fields tell."""
    texts = [*labels, *[name for name in labels.names if name is not None]]
    return str(labels.dtype) == "str" and len(labels) > 0 and all(text.__class__ is str for text in texts)


def _is_named(dtype: Any, name: str) -> bool:
    """Whether pandas makes a dtype of its name."""
    try:
        return bool(sys.modules["pandas"].api.types.pandas_dtype(name) == dtype)
    except (TypeError, NotImplementedError, ValueError):
        return False


def _levels(index: Any) -> list[Any]:
    """The levels of an index, without names: pandas takes a number for a name first."""
    unnamed = index.set_names([None] * index.nlevels)
    return [unnamed.get_level_values(i) for i in range(index.nlevels)]


def _names(index: Any) -> Any:
    """The names of an index as JSON."""
    with at("the name of an index"):
        return [to_json(name) for name in index.names]


def _frequency(index: Any) -> str | None:
    """The frequency of an index of times, as text; that of periods is in their dtype."""
    frequency = getattr(index, "freq", None)
    if frequency is None or index.dtype.__class__.__name__ == "PeriodDtype":
        return None
    text = str(frequency.freqstr)
    try:
        same = sys.modules["pandas"].tseries.frequencies.to_offset(text) == frequency
    except ValueError:
        same = False
    if not same:
        raise InvalidType(f"the frequency {shown(frequency)} of an index has no form as text", hint="index.freq = None")
    return text


def _dtype(values: Any) -> tuple[str, dict[str, Any] | None]:
    """The metadata name of a dtype, and additional metadata."""
    dtype = values.dtype
    if dtype.__class__.__name__ == "CategoricalDtype":
        codes = getattr(values, "cat", values).codes
        return str(codes.dtype), {"num_categories": len(dtype.categories), "ordered": bool(dtype.ordered)}
    if dtype.__class__.__name__ == "DatetimeTZDtype":
        return f"datetime64[{dtype.unit}]", {"timezone": zone_name(dtype.tz)}
    try:
        return str(dtype), None
    except NotImplementedError:  # an ArrowDtype of a type unknown to pandas has no name
        return f"{dtype.pyarrow_dtype}[pyarrow]", None


_LOGICAL = {
    "null": "empty", "bool_": "bool", "date32": "date", "date64": "date", "time32": "time", "time64": "time",
    "binary": "bytes", "string": "unicode", "dictionary": "categorical",
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"float{bits}" for bits in (16, 32, 64)},
}  # fmt: skip


def _logical(type: Any) -> str:
    """The metadata name of a type."""
    if type.array_class is not None:
        return "object"
    name = type.descriptor.factory.format(t=type)
    if name == "timestamp":
        return "datetime" if type.tz is None else "datetimetz"
    if name == "list_" and type.layout == "list":
        return f"list[{_logical(type.value_type)}]"
    return "decimal" if name.startswith("decimal") else _LOGICAL.get(name, "object")


def _attributes(attributes: Any) -> Any:
    """A frame's attributes as JSON."""
    found = {}
    for name, value in dict(attributes).items():
        with at("attrs", name):
            try:
                found[name] = to_json(value)
            except RecursionError:
                raise InvalidType("the value is nested too deeply, or is recursive") from None
    return found if all(isinstance(name, str) and name[:1] != "$" for name in found) else to_json(dict(attributes))


def check_no_duplicates(frame: Frame) -> None:
    """Raise for duplicate column names, which cannot be matched by name."""
    names = [column.name for column in [*frame.columns, *frame.levels]]
    if len(set(names)) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidArgument(
            f"columns are matched to the schema by name, but the data frame has several named {shown(name)}"
        )
