"""Conversion to pandas through pyarrow: arrays to Series, batches and tables to DataFrames; numbers are zero-copy.

pandas builds its Arrow-backed columns on pyarrow, and pyarrow supports all dtypes of pandas, so it does the conversion.
Two things are done here: types that pandas lacks, or that pyarrow converts incorrectly, are cast first, as by
``for_consumer("pandas")``; and Arrow-backed columns of all types are restored, of which pyarrow restores only simple
ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shmarrow.build.frames import KEY
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, Unsupported, shown
from shmarrow.optional import optional
from shmarrow.types import Schema

OPTIONS = frozenset({
    "categories", "strings_to_categorical", "zero_copy_only", "integer_object_nulls", "date_as_object",
    "timestamp_as_object", "use_threads", "deduplicate_objects", "safe", "split_blocks", "maps_as_pydicts",
    "types_mapper", "coerce_temporal_nanoseconds",
})  # fmt: skip
"""The options of pyarrow's ``to_pandas`` that are passed on."""


def series(column: Any, arrow_backed: bool, writable: bool, options: dict[str, Any]) -> Any:
    """Convert an array or a chunked array to a ``pandas.Series``."""
    options = _checked(options, arrow_backed)
    cast = column.for_consumer("pandas")
    made = cast.to_pyarrow()
    options = _exact(cast, options)
    result = _converted(lambda: made.to_pandas(**options), options, False)
    own = _writable(cast, result) if writable else None
    return result if own is None else own


def frame(rows: Any, arrow_backed: bool, ignore_metadata: bool, writable: bool, options: dict[str, Any]) -> Any:
    """Convert a record batch or a table to a ``pandas.DataFrame``."""
    options = {"split_blocks": True, **_checked(options, arrow_backed)}
    cast = rows.for_consumer("pandas")
    names = cast.schema.names
    unique = _unique(names)
    made = cast.to_pyarrow()
    if unique != names:  # pyarrow finds dtypes and categories by name
        made = made.rename_columns(unique)
    text = None if ignore_metadata else (cast.schema.metadata or {}).get(KEY)
    exact = {
        name: chosen
        for name, column in zip(unique, cast.columns, strict=True)
        if (chosen := _exact(column, options)) is not options
    }

    def convert() -> Any:
        if unique != names and options.get("categories"):
            wanted = set(options["categories"])
            options["categories"] = [new for new, name in zip(unique, names, strict=True) if name in wanted]
        if text is None:
            plain = made.replace_schema_metadata(None)  # pyarrow parses it even if it is not used
            result = plain.to_pandas(**options)
            result.columns = result.columns if unique == names else names
            index: list[Any] = []
        else:
            described = json.loads(text)
            index = [each for each in described["index_columns"] if isinstance(each, str)]
            if unique != names:
                _rename(described, names, unique)
            for entry in described["columns"]:
                name = entry.get("field_name", entry["name"])
                if name in index and name in exact:
                    entry["numpy_type"] = _NULLABLE[str(made.schema.field(name).type)]
            result = _restored(made, cast.schema, described, index, options)
        for place, i in enumerate([i for i, name in enumerate(unique) if name not in index]):
            if unique[i] in exact and isinstance(result.dtypes.iloc[place], np.dtype):
                result.isetitem(place, made.column(i).to_pandas(**exact[unique[i]]).array)
            own = _writable(cast.column(i), result.iloc[:, place]) if writable else None
            if own is not None:
                result.isetitem(place, own)
        return result

    return _converted(convert, options, text is not None)


def _exact(column: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options for a column: integers beside nulls that a float, which pyarrow gives, cannot hold stay integers."""
    if options.get("integer_object_nulls") or not _are_rounded(getattr(column, "chunks", [column])):
        return options
    given = options.get("types_mapper", lambda type: None)

    def nullable(type: Any) -> Any:
        return given(type) or (
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


def _unique(names: list[str]) -> list[str]:
    """Make names unique by changing later duplicates."""
    if len(set(names)) == len(names):
        return names
    taken, seen, found = set(names), set(), []
    for name in names:
        new, number = name, 1
        while new in seen or (new != name and new in taken):
            new, number = f"{name}.{number}", number + 1
        seen.add(new)
        found.append(new)
    return found


def _rename(described: Any, names: list[str], unique: list[str]) -> None:
    """Replace the field names in the metadata; the labels in pandas stay."""
    left: dict[str, list[str]] = {}
    for name, new in zip(names, unique, strict=True):
        left.setdefault(name, []).append(new)
    for entry in described["columns"]:
        new_names = left.get(entry.get("field_name", entry["name"]))
        if new_names:
            entry["field_name"] = new_names.pop(0)
    described["columns"] += [
        {"name": name, "field_name": new, "pandas_type": "object", "numpy_type": "object", "metadata": None}
        for name, new_names in left.items()
        for new in new_names
    ]


def _writable(column: Any, made: Any) -> Any:
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
    dtype = made.dtype
    if len(chunks) != 1 or isinstance(dtype, module.ArrowDtype):
        return None
    if not isinstance(dtype, np.dtype):
        return made.copy()
    if dtype.kind not in "iufmM" or column.null_count:
        return None
    values = chunks[0].to_numpy(False, writable=True)
    return module.Series(values, made.index, name=made.name, copy=False) if values.dtype == dtype else None


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
    except MemoryError:
        raise
    except Exception as error:  # the metadata are untrusted, and options may be wrong in many ways
        text = f"{error.__class__.__name__}: {error}"
        if options.get("zero_copy_only") and isinstance(error, pa.ArrowInvalid):
            raise CopyRequired(f"pandas needs a copy: {error}") from None
        if described:
            raise InvalidData(
                f"cannot make a DataFrame from the schema's metadata {shown(KEY)}: {text}; "
                "to_pandas(ignore_metadata=True) ignores it"
            ) from None
        raise InvalidArgument(f"pyarrow cannot make this a pandas object with the options given: {text}") from None


# --- what pyarrow does not restore ------------------------------------------------------------------------------


def _restored(made: Any, schema: Schema, described: Any, index: list[str], options: dict[str, Any]) -> Any:
    """Restore the frame described by the metadata, with all Arrow-backed columns and dtypes of the index.

    Parameters
    ----------
    made : pyarrow.RecordBatch or pyarrow.Table
        The rows.
    schema : Schema
        Their schema, with other metadata to keep.
    described : dict
        The pandas metadata.
    index : list of str
        Fields that are levels of the index.
    """
    module = optional("pandas")
    if "types_mapper" in options:
        return _with_metadata(made, schema, described).to_pandas(**options)
    entries = {entry.get("field_name", entry["name"]): entry for entry in described["columns"]}
    columns: list[int] = []
    levels: dict[str, Any] = {}
    table = made
    for i, field in enumerate(made.schema):
        entry = entries.get(field.name, {"numpy_type": "object"})
        backed = str(entry["numpy_type"]).endswith("[pyarrow]")
        if field.name in index:
            dtype = module.ArrowDtype(field.type) if backed else module.api.types.pandas_dtype(entry["numpy_type"])
            if hasattr(dtype, "__from_arrow__") and not isinstance(dtype, module.StringDtype):
                levels[field.name] = dtype.__from_arrow__(made.column(i))
        elif backed:
            columns.append(i)
            blank = optional("pyarrow").array(np.zeros(made.num_rows, np.int8))  # it is replaced below
            table = table.set_column(i, field.name, blank)
        if backed:
            entry["numpy_type"] = "object"
    result = _with_metadata(table, schema, described).to_pandas(**options)
    for i in columns:
        place = sum(name not in index for name in made.schema.names[:i])
        result.isetitem(place, module.arrays.ArrowExtensionArray(made.column(i)))
    if levels:
        found = [levels.get(name, result.index.get_level_values(k)) for k, name in enumerate(index)]
        names = result.index.names
        if len(found) > 1:
            result.index = module.MultiIndex.from_arrays(found, names=names)
        else:
            result.index = module.Index(found[0], name=names[0])
    return result


def _with_metadata(made: Any, schema: Schema, described: Any) -> Any:
    """Return the rows with pandas metadata."""
    if not made.num_columns:  # other metadata would lose the number of rows
        return made
    return made.replace_schema_metadata({**(schema.metadata or {}), KEY: json.dumps(described)})
