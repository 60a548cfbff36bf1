# SPDX-License-Identifier: Apache-2.0
"""Conversion to pandas: arrays to Series, batches and tables to DataFrames; numbers are zero-copy.

Most columns are converted by pyarrow, on which pandas builds its Arrow-backed columns, all at once, after types that
pandas lacks were cast as by ``for_consumer("pandas")``. A column whose dtype is recorded in the metadata is restored to
that dtype by :func:`_restored`, and so are levels of the index, categories and ends of intervals.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.build.frames import OWN, from_json, stored_type
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, ShmarrowError, Unsupported, at, optional, shown
from shmarrow.layout.listing import LISTS
from shmarrow.types import PANDAS_KEY, Schema, types_in

OPTIONS = frozenset({
    "categories", "strings_to_categorical", "zero_copy_only", "integer_object_nulls", "date_as_object",
    "timestamp_as_object", "use_threads", "deduplicate_objects", "safe", "split_blocks", "maps_as_pydicts",
    "types_mapper",
})  # fmt: skip
"""The options of pyarrow's ``to_pandas`` that are passed on."""


def series(column: Any, arrow_backed: bool, writable: bool, options: dict[str, Any]) -> Any:
    """Convert an array or a chunked array to a ``pandas.Series``."""
    options = _checked(options, arrow_backed)
    return _converted(lambda: _series(column, writable, options), options, False)


def _series(column: Any, writable: bool, options: dict[str, Any]) -> Any:
    form = None if "types_mapper" in options else _form_of(column.type)
    if form is not None:
        return optional("pandas").Series(_restored(column, form))
    cast = column.for_consumer("pandas")
    result = cast.to_pyarrow().to_pandas(**_exact(cast, options))
    own = _writable(cast, result) if writable else None
    return result if own is None else own


def frame(rows: Any, arrow_backed: bool, ignore_metadata: bool, writable: bool, options: dict[str, Any]) -> Any:
    """Convert a record batch or a table to a ``pandas.DataFrame``."""
    options = {"split_blocks": True, **_checked(options, arrow_backed)}
    text = None if ignore_metadata else (rows.schema.metadata or {}).get(PANDAS_KEY)

    def convert() -> Any:
        return _frame(rows, _Described(_NONE if text is None else json.loads(text), rows.schema), writable, options)

    return _converted(convert, options, text is not None)


def _frame(rows: Any, described: _Described, writable: bool, options: dict[str, Any]) -> Any:
    module, pa = optional("pandas"), optional("pyarrow")
    names = rows.schema.names
    places = [i for i in range(len(names)) if i not in described.levels]
    chosen = options.pop("categories", None) or ()
    forms = {} if "types_mapper" in options else {i: described.form(i) for i in places if names[i] not in set(chosen)}
    forms = {i: form for i, form in forms.items() if form is not None}
    plain = rows._selected([i for i in places if i not in forms]).for_consumer("pandas")
    # Columns are numbered, as names may repeat; those restored by themselves are replaced after the others were made.
    blank = pa.nulls(rows.num_rows, pa.int8()).fill_null(0) if forms else None
    columns = iter(plain.to_pyarrow().columns)
    table = pa.table([blank if i in forms else next(columns) for i in places], [str(k) for k in range(len(places))])
    positions = [str(k) for k, i in enumerate(places) if names[i] in chosen]
    result = table.to_pandas(**options, categories=positions or None)
    if not places:
        result = module.DataFrame(index=module.RangeIndex(rows.num_rows))
    source = iter(plain.columns)
    for k, i in enumerate(places):
        with at("column", names[i]):
            if i in forms:
                values = _restored(rows.column(i), forms[i])
                # Of an ndarray of objects, pandas would infer a dtype.
                objects = isinstance(values, np.ndarray) and values.dtype == object
                result.isetitem(k, module.Series(values, result.index, object) if objects else values)
                continue
            column = next(source)
            exact = _exact(column, options)
            if exact is not options and isinstance(result.dtypes.iloc[k], np.dtype):
                result.isetitem(k, column.to_pyarrow().to_pandas(**exact).array)
            own = _writable(column, result.iloc[:, k]) if writable else None
            if own is not None:
                result.isetitem(k, own)
    result.columns = described.labels(places)
    result.index = described.index(rows, result.index)
    result.attrs = described.attributes
    return result


def _exact(column: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options for a column: integers beside nulls that a float, which pyarrow gives, cannot hold stay integers."""
    if options.get("integer_object_nulls") or not _are_rounded(getattr(column, "chunks", [column])):
        return options
    mapper = options.get("types_mapper", lambda type: None)

    def nullable(type: Any) -> Any:
        return mapper(type) or (
            optional("pandas").api.types.pandas_dtype(_NULLABLE[str(type)]) if str(type) in _NULLABLE else None
        )

    return {**options, "types_mapper": nullable, "integer_object_nulls": True}


_NULLABLE = {"int64": "Int64", "uint64": "UInt64"}


def _are_rounded(chunks: Sequence[Any]) -> bool:
    """Whether arrays of one type have integers that are not exact as floats, beside nulls."""
    plain = [chunk._storage for chunk in chunks]
    if not plain or plain[0].type.descriptor.values != "integer":
        return any(map(_are_rounded, zip(*[each.children for each in plain], strict=True)))
    if str(plain[0].type) not in _NULLABLE or not any(each.null_count for each in plain):
        return False
    known = [each.values[each._valid()] for each in plain]
    return any(len(each) and (int(each.max()) > _WHOLE or int(each.min()) < -_WHOLE) for each in known)


_WHOLE = 1 << 53
"""Up to where every integer is exact as a float."""


def _writable(column: Any, series: Any) -> Any:
    """Return the values of a series in private memory; None if they are private already.

    Parameters
    ----------
    column : Array or ChunkedArray
        The source column.
    made : pandas.Series
        pyarrow's result. Several chunks have been copied, and Arrow-backed values are replaced on assignment.
    """
    module = optional("pandas")
    chunks = getattr(column, "chunks", [column])
    dtype = series.dtype
    if len(chunks) != 1 or isinstance(dtype, module.ArrowDtype):
        return None
    if not isinstance(dtype, np.dtype):
        return series.copy()
    if dtype.kind not in "iufmM" or column.null_count:
        return None
    values = chunks[0].to_numpy(False, writable=True)
    return module.Series(values, series.index, name=series.name, copy=False) if values.dtype == dtype else None


def _checked(options: dict[str, Any], arrow_backed: bool) -> dict[str, Any]:
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        known = f"expected one or more of {', '.join(sorted(OPTIONS))}"
        hint = "arrow_backed=True gives Arrow-backed columns" if unknown[0] == "dtype_backend" else known
        raise InvalidArgument(f"to_pandas has no option {shown(unknown[0])}", hint=hint)
    module = optional("pandas")
    if not arrow_backed:
        return options
    if "types_mapper" in options:
        raise InvalidArgument("arrow_backed=True is a types_mapper: expected one or the other")
    return {**options, "types_mapper": module.ArrowDtype}


def _converted(convert: Callable[[], Any], options: dict[str, Any], described: bool) -> Any:
    """Run pyarrow's conversion, and translate its errors."""
    pa = optional("pyarrow")
    try:
        return convert()
    except (pa.ArrowNotImplementedError, NotImplementedError) as error:
        raise Unsupported(f"pandas has no form for this: {error}") from None
    except (MemoryError, ShmarrowError):
        raise
    except Exception as error:  # the metadata are untrusted, and options may be wrong in many ways
        text = f"{error.__class__.__name__}: {error}"
        if options.get("zero_copy_only") and isinstance(error, pa.ArrowInvalid):
            raise CopyRequired(f"pandas needs a copy: {error}") from None
        if described:
            raise InvalidData(
                f"cannot make a DataFrame from the schema's metadata {shown(PANDAS_KEY)}: {text}; "
                "to_pandas(ignore_metadata=True) ignores it"
            ) from None
        raise InvalidArgument(f"pyarrow cannot make this a pandas object with the options given: {text}") from None


# --- frames as they were ------------------------------------------------------------------------------------------


_NONE: dict[str, Any] = {"index_columns": [], "columns": []}
"""The metadata of a schema without any."""


class _Described:
    """What the metadata of a schema say about a frame; nothing is known without them.

    Attributes
    ----------
    levels : dict
        The fields that are levels of the index, by position, with their place among the levels.
    attributes : dict
        ``frame.attrs``.
    """

    def __init__(self, found: Any, schema: Schema) -> None:
        self._schema = schema
        self._found = found
        self._own = self._found.get(OWN, {})
        entries: dict[str, list[Any]] = {}
        for place, entry in enumerate(self._found["columns"]):
            entries.setdefault(entry.get("field_name", entry["name"]), []).append((place, entry))
        # Fields of one name take its entries in order.
        self._entries: list[tuple[Any, Any]] = [
            entries[name].pop(0) if entries.get(name) else (None, None) for name in schema.names
        ]
        fields = {name: i for i, name in reversed(list(enumerate(schema.names)))}
        index = self._found["index_columns"]
        self.levels = {fields[name]: k for k, name in enumerate(index) if isinstance(name, str) and name in fields}
        attributes = self._own.get("attributes")
        self.attributes = self._found.get("attributes") or {} if attributes is None else from_json(attributes)

    def form(self, i: int) -> Any:
        """The recorded dtype of a field, in the form of :func:`dtype_form`; None for what pyarrow makes of it."""
        type: Any = self._schema.field(i).type
        _, entry = self._entries[i]
        own = {} if entry is None else entry.get(OWN, {})
        if own.get("type") == stored_type(type):
            return own["dtype"]
        if entry is None:
            return _form_of(type)
        name = str(entry["numpy_type"])
        if name.endswith("[pyarrow]"):
            return name
        if type.layout == "dictionary":
            return _form_of(type)
        dtype = optional("pandas").api.types.pandas_dtype(name)
        return _form_of(type) if isinstance(dtype, np.dtype) or str(dtype) == "str" else name

    def labels(self, places: Sequence[int]) -> Any:
        """The labels of the columns at some fields; a field that was not in the frame has its name."""
        module = optional("pandas")
        labels = [self._entries[i][0] for i in places]
        names = [self._schema.field(i).name for i in places]
        form = self._own.get("labels")
        if form is None:
            texts = [self._entries[i][1]["name"] if self._entries[i][1] else self._schema.field(i).name for i in places]
            return _read_labels(texts, self._found.get("column_indexes") or [])
        whole = _labels(form)
        if labels == list(range(len(whole))):
            return whole
        if None not in labels:
            return whole.take(labels)
        mixed = [name if place is None else whole[place] for place, name in zip(labels, names, strict=True)]
        return module.Index(_objects(mixed), tupleize_cols=False, name=None if whole.nlevels > 1 else whole.name)

    def index(self, rows: Any, default: Any) -> Any:
        """The index of the rows; the default if the metadata have none, or one of another length."""
        module = optional("pandas")
        fields = {k: i for i, k in self.levels.items()}
        arrays, names = [], []
        for k, level in enumerate(self._found["index_columns"]):
            if isinstance(level, str):
                if k not in fields:
                    continue
                entry = self._entries[fields[k]][1]
                form = self.form(fields[k])
                with at("column", level):
                    arrays.append(_restored(rows.column(fields[k]), form))
                name = None if entry["name"] == level and level.startswith("__index_level_") else entry["name"]
            else:
                if level["kind"] != "range":
                    raise ValueError(f"expected an index of the kind 'range', found {shown(level['kind'])}")
                array = module.RangeIndex(level["start"], level["stop"], level["step"])
                if len(array) != len(default):
                    continue
                arrays.append(array)
                name = level["name"]
            own = self._own.get("names")
            names.append(from_json(own[k]) if own else name)
        if not arrays:
            return default
        if len(arrays) > 1 or self._own.get("multiple"):
            return module.MultiIndex.from_arrays([_index(array, None) for array in arrays], names=names)
        return _with_frequency(_index(arrays[0], names[0]), self._own.get("freq"))


def _index(values: Any, name: Any) -> Any:
    dtype = object if values.dtype == object else None
    index = optional("pandas").Index(values, dtype=dtype, tupleize_cols=False)
    index.name = name
    return index


def _with_frequency(index: Any, frequency: str | None) -> Any:
    """Set the frequency of an index, unless its values no longer have it."""
    try:
        return index if frequency is None else type(index)(index, freq=frequency)
    except ValueError:
        return index


def _labels(form: Any) -> Any:
    """Make labels from what :func:`labels_form` recorded."""
    module = optional("pandas")
    names = [from_json(name) for name in form["names"]]
    if "levels" in form:
        return module.MultiIndex.from_arrays(list(map(_labels, form["levels"])), names=names)
    if "range" in form:
        return module.RangeIndex(*form["range"], name=names[0])
    if "codes" in form:
        categories = module.Categorical.from_codes(form["codes"], _labels(form["categories"]), form["ordered"])
        return module.CategoricalIndex(categories, name=names[0])
    values, dtype = _objects(from_json(form["values"])), _dtype(form["dtype"])
    if dtype.name != "object":
        values = module.array(values, dtype=dtype)
    return _with_frequency(_index(values, names[0]), form["freq"])


def _read_labels(texts: list[Any], levels: list[Any]) -> Any:
    """Make labels of their texts as pyarrow stores them, one level at a time."""
    module = optional("pandas")
    parts: list[Any] = [texts]
    if len(levels) > 1:
        parts = list(zip(*map(ast.literal_eval, texts), strict=True)) or [[]] * len(levels)
    arrays = [_read_level(part, level) for part, level in zip(parts, levels, strict=True)] if levels else parts
    names = [level.get("name") for level in levels]
    if len(arrays) > 1:
        return module.MultiIndex.from_arrays(arrays, names=names)
    return module.Index(arrays[0], name=names[0] if names else None)


def _read_level(texts: Any, level: Any) -> Any:
    module = optional("pandas")
    kind, dtype, metadata = level["pandas_type"], level["numpy_type"], level.get("metadata")
    if kind == "bytes":
        return [text.encode() for text in texts]
    if kind == "datetimetz":
        moments = module.to_datetime(list(texts), utc=True).tz_convert(metadata["timezone"])
        return moments.as_unit(np.datetime_data(dtype)[0])
    if kind in ("unicode", "string", "mixed", "empty", "object", "boolean", "bool") or dtype in ("object", "str"):
        return list(texts)
    return module.Index(texts).astype(dtype)


# --- values of a dtype --------------------------------------------------------------------------------------------


def _dtype(form: Any) -> Any:
    """The dtype that :func:`dtype_form` recorded, other than of categories."""
    module = optional("pandas")
    if isinstance(form, str):
        return module.api.types.pandas_dtype(form)
    if "string" in form:
        return module.StringDtype(form["string"], na_value=np.nan if form["nan"] else module.NA)
    if "sparse" in form:
        return module.SparseDtype(form["sparse"], from_json(form["fill"]))
    if "interval" in form:
        return module.IntervalDtype(_dtype(form["interval"]), form["closed"])
    return np.dtype(object)


def _form_of(type: Any) -> Any:
    """The form of lists and dictionaries of zoned times, whose zones pyarrow drops; None for other types."""
    if not (type.fields or type.layout == "dictionary") or not any(
        getattr(each, "tz", None) for each in types_in(type)
    ):
        return None
    type = types.schema([("", type)]).for_consumer("pandas").field(0).type
    if type.layout == "dictionary":
        return {"category": None, "ordered": type.ordered}
    if type.layout not in LISTS:
        return None
    zoned = getattr(type.value_type, "tz", None)
    return {"list": None} if zoned or _form_of(type.value_type) is not None else None


def _restored(column: Any, form: Any) -> Any:
    """Return the values of an array or a chunked array as a pandas array or an ndarray of a recorded dtype."""
    if form is None:
        return _series(column, False, {}).array
    kind = "" if isinstance(form, str) else next(iter(form))
    if kind in _RESTORE:
        return _RESTORE[kind](column, form)
    if isinstance(form, str) and form.endswith("[pyarrow]"):
        return optional("pandas").arrays.ArrowExtensionArray(_chunked(column))
    dtype = _dtype(form)
    if dtype.__class__.__name__ in _RESTORE:
        return _RESTORE[dtype.__class__.__name__](column, dtype)
    if hasattr(dtype, "__from_arrow__"):
        return dtype.__from_arrow__(_chunked(column))
    return _series(column, False, {}).astype(dtype).array


def _chunked(column: Any) -> Any:
    chunks = column.to_pyarrow()
    return chunks if hasattr(chunks, "chunks") else optional("pyarrow").chunked_array([chunks])


def _one(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "chunks") else column


def _objects(values: Sequence[Any]) -> Any:
    """An ndarray of objects, which Series and Index take for what they are only with their ``dtype=object``."""
    return np.fromiter(values, object, len(values))


def _categories(column: Any, form: Any) -> Any:
    module = optional("pandas")
    array = _one(column)
    codes = array.indices
    codes = codes.to_numpy(False) if not codes.null_count else codes.fill_null(-1).to_numpy(False)
    categories = _with_frequency(_index(_restored(array.dictionary, form["category"]), None), form.get("freq"))
    return module.Categorical.from_codes(codes, categories, ordered=form["ordered"])


def _periods(column: Any, dtype: Any) -> Any:
    ordinals = _one(column).fill_null(np.iinfo(np.int64).min).to_numpy(False)
    return optional("pandas").PeriodIndex.from_ordinals(ordinals, freq=dtype.freq).array


def _floats(column: Any, dtype: Any) -> Any:
    """Floats with a mask; NaN is a value in them, which pandas' own conversion from Arrow makes null."""
    array = _one(column)
    values = array.to_numpy(False).astype(dtype.numpy_dtype)
    return optional("pandas").arrays.FloatingArray(values, array.is_null().to_numpy(False))


def _intervals(column: Any, dtype: Any) -> Any:
    ends = [_restored(end, str(dtype.subtype)) for end in column.flatten()]
    return optional("pandas").arrays.IntervalArray.from_arrays(*ends, closed=dtype.closed, dtype=dtype)


def _sparse(column: Any, form: Any) -> Any:
    dtype = _dtype(form)
    dense = _series(column, False, {}).to_numpy(dtype.subtype)
    return optional("pandas").arrays.SparseArray(dense, fill_value=dtype.fill_value, dtype=dtype)


def _lists(column: Any, form: Any) -> Any:
    """Lists as ndarrays of objects, of the values as a Series holds them."""
    array = _one(column).for_consumer("pandas")
    starts, sizes, items = array._spans()
    values = _series(items, False, {}).astype(object).to_numpy(copy=True)
    if "items" in form:
        values[items.is_null().to_numpy(False)] = None
    spans = zip(starts.tolist(), sizes.tolist(), array.is_valid().to_pylist(), strict=True)
    return _objects([values[start : start + size] if valid else None for start, size, valid in spans])


def _python(column: Any, form: Any) -> Any:
    """Objects of the recorded classes."""
    missing = from_json(form["missing"])
    kinds = form["object"]
    if set(kinds) & {"datetime64", "timedelta64"}:
        pairs = zip(_one(column).to_numpy(False), column.is_null().to_pylist(), strict=True)
        return _objects([missing if none else value for value, none in pairs])
    if set(kinds) & {"ndarray", "Timestamp", "Timedelta", "DateOffset"}:
        values = _series(column, False, {}).astype(object).to_numpy()
        absent = column.is_null().to_pylist()
        values = [missing if none else value for value, none in zip(values, absent, strict=True)]
        return _objects(values)
    values = _lists(column, form).tolist() if "items" in form else column.to_pylist()
    cls: Any = _BUILTINS.get("".join(kinds))
    return _objects([missing if value is None else cls(value) if cls else value for value in values])


_BUILTINS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "bytearray": bytearray}

_RESTORE: dict[str, Callable[[Any, Any], Any]] = {
    "category": _categories,
    "sparse": _sparse,
    "object": _python,
    "list": _lists,
    "PeriodDtype": _periods,
    "IntervalDtype": _intervals,
    "Float32Dtype": _floats,
    "Float64Dtype": _floats,
}
"""How values are restored for which pandas has no function, by the kind of the form or the class of the dtype."""
