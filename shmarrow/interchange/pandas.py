"""To pandas: arrays as Series, batches and tables as DataFrames, through pyarrow; numbers are not copied.

pandas builds its Arrow-backed columns on pyarrow, and pyarrow knows all dtypes of pandas, so it does the conversion.
Two things are done here: types that pandas has not, or that pyarrow gives it wrong, are cast first, as
``for_consumer("pandas")`` does; and Arrow-backed columns, of which pyarrow restores the simple types only, come back as
they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow.build.frames import KEY
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, MissingExtra, Unsupported, shown
from shmarrow.interchange.pyarrow import partner
from shmarrow.types import Schema

OPTIONS = frozenset({
    "categories", "strings_to_categorical", "zero_copy_only", "integer_object_nulls", "date_as_object",
    "timestamp_as_object", "use_threads", "deduplicate_objects", "safe", "split_blocks", "maps_as_pydicts",
    "types_mapper", "coerce_temporal_nanoseconds",
})  # fmt: skip
"""The options of pyarrow's ``to_pandas`` that are passed on."""


def pandas() -> Any:
    """The module ``pandas``; MissingExtra where it is not installed."""
    try:
        import pandas as module
    except ImportError as error:
        raise MissingExtra(f"pandas is needed here: pip install 'shmarrow[pandas]' ({error})") from None
    return module


def series(column: Any, arrow_backed: bool, options: dict[str, Any]) -> Any:
    """An array or a chunked array as a ``pandas.Series``."""
    options = _checked(options, arrow_backed)
    made = column.for_consumer("pandas").to_pyarrow()
    return _converted(lambda: made.to_pandas(**options), options, False)


def frame(rows: Any, arrow_backed: bool, ignore_metadata: bool, options: dict[str, Any]) -> Any:
    """A record batch or a table as a ``pandas.DataFrame``."""
    options = {"split_blocks": True, **_checked(options, arrow_backed)}
    cast = rows.for_consumer("pandas")
    made = cast.to_pyarrow()
    if ignore_metadata or KEY not in (cast.schema.metadata or {}):
        made = made.replace_schema_metadata(None)  # which is parsed even where it is not used
        return _converted(lambda: made.to_pandas(**options), options, False)
    if "types_mapper" in options:
        return _converted(lambda: made.to_pandas(**options), options, True)
    return _converted(lambda: _restored(made, cast.schema, options), options, True)


def _checked(options: dict[str, Any], arrow_backed: bool) -> dict[str, Any]:
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise InvalidArgument(
            f"to_pandas has no option {shown(unknown[0])}; expected some of {', '.join(sorted(OPTIONS))}"
        )
    module = pandas()
    if not arrow_backed:
        return options
    if "types_mapper" in options:
        raise InvalidArgument("arrow_backed=True is a types_mapper: expected one or the other")
    return {**options, "types_mapper": module.ArrowDtype}


def _converted(convert: Callable[[], Any], options: dict[str, Any], described: bool) -> Any:
    """The result of pyarrow's conversion, with errors of our own."""
    pa = partner()
    try:
        return convert()
    except (pa.ArrowNotImplementedError, NotImplementedError) as error:
        raise Unsupported(f"pandas has no form for this: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # the metadata are anybody's, and options may be wrong in many ways
        text = f"{error.__class__.__name__}: {error}"
        if options.get("zero_copy_only") and isinstance(error, pa.ArrowInvalid):
            raise CopyRequired(f"pandas needs a copy: {error}") from None
        if described:
            raise InvalidData(
                f"cannot make a DataFrame as the schema's metadata {shown(KEY)} say: {text}; "
                "to_pandas(ignore_metadata=True) leaves them out"
            ) from None
        raise InvalidArgument(f"pyarrow cannot make this a pandas object with the options given: {text}") from None


# --- what pyarrow does not restore ------------------------------------------------------------------------------


def _restored(made: Any, schema: Schema, options: dict[str, Any]) -> Any:
    """The frame that the metadata describe, with all Arrow-backed columns and all dtypes of the index."""
    module = pandas()
    described = json.loads((schema.metadata or {})[KEY])
    index = [each for each in described["index_columns"] if isinstance(each, str)]
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
            blank = partner().array(np.zeros(made.num_rows, np.int8))  # it is replaced below
            table = table.set_column(i, field.name, blank)
        if backed:
            entry["numpy_type"] = "object"
    if not columns and not levels:
        return made.to_pandas(**options)
    table = table.replace_schema_metadata({**(schema.metadata or {}), KEY: json.dumps(described)})
    result = table.to_pandas(**options)
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
