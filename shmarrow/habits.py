"""What users of pyarrow, pandas and Polars type first and shmarrow has not: one sentence each that says what does it.

Invariants: what is asked for by ``hasattr``, ``copy``, ``pickle`` or a protocol gets AttributeError, as ever; a name
that a class has is never looked up here.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shmarrow.errors import InvalidType

_POLARS = (
    "aggregate corr describe diff explode group_by group_by_dynamic iter_rows join join_asof lazy max mean median min "
    "n_unique pivot product quantile sample sort std sum tail transpose unique unpivot value_counts var with_columns"
)
_ROWS = {
    **dict.fromkeys(_POLARS.split(), "hand it to Polars: `polars.DataFrame({it}).{name}(...)`"),
    "groupby": "hand it to Polars: `polars.DataFrame({it}).group_by(...)`",
    "merge": "hand it to Polars: `polars.DataFrame({it}).join(...)`",
    "sort_by": "hand it to Polars: `polars.DataFrame({it}).sort(...)`",
    "sort_values": "hand it to Polars: `polars.DataFrame({it}).sort(...)`",
    "drop_duplicates": "hand it to Polars: `polars.DataFrame({it}).unique()`",
    "dropna": "hand it to Polars: `polars.DataFrame({it}).drop_nulls()`",
    "fillna": "hand it to Polars: `polars.DataFrame({it}).fill_null(value)`",
    "apply": "hand it to pandas: `{it}.to_pandas().apply(...)`",
    "iterrows": "`{it}.to_pylist()` has the rows as dicts",
    "to_polars": "`polars.DataFrame({it})` shares its memory",
    "to_duckdb": "duckdb.sql reads a variable by its name: `duckdb.sql('FROM {it}')`",
    "sql": "duckdb.sql reads a variable by its name: `duckdb.sql('FROM {it}')`",
    "query": "duckdb.sql reads a variable by its name: `duckdb.sql('FROM {it} WHERE ...')`",
    "to_arrow": "`{it}.to_pyarrow()` shares its memory",
    "to_parquet": "`pyarrow.parquet.write_table({it}.to_pyarrow(), path)` writes it",
    "write_parquet": "`pyarrow.parquet.write_table({it}.to_pyarrow(), path)` writes it",
    "to_csv": "`{it}.to_pandas().to_csv(path)` writes it",
    "write_csv": "`polars.DataFrame({it}).write_csv(path)` writes it",
    "names": "`{it}.schema.names` has them",
    "dtypes": "`{it}.schema.types` has them",
    "height": "`{it}.num_rows` has it",
    "width": "`len({it}.schema)` has it",
    "iloc": "`{it}[start:stop]` and `{it}.take(positions)` select rows",
    "loc": "`{it}.filter(mask)` and `{it}.select(names)` select rows and columns",
}
_READER = {
    **_ROWS,
    "head": "`{it}.read_all().head(n)` has the first rows",
    "filter": "`{it}.read_all().filter(mask)` selects rows",
    "select": "`{it}.read_all().select(names)` selects columns",
    "column": "`{it}.read_all().column(name)` is the column",
    "columns": "`{it}.read_all().columns` has them",
    "column_names": "`{it}.schema.names` has them",
    "slice": "`{it}.read_all().slice(offset, length)` has these rows",
    "to_pydict": "`{it}.read_all().to_pydict()` has the values",
    "to_pylist": "`{it}.read_all().to_pylist()` has the rows",
    "to_pyarrow": "`{it}.read_all().to_pyarrow()` is a pyarrow.Table",
    "read": "`{it}.read_all()` reads all batches, `for batch in {it}` one after another",
}
_SCAN = {
    **_READER,
    **dict.fromkeys(("num_rows", "height"), "`{it}.count_rows()` counts them"),
    "to_arrow": "`{it}.to_table().to_pyarrow()` is a pyarrow.Table",
    "apply": "hand it to pandas: `{it}.to_table().to_pandas().apply(...)`",
    "filter": "`{it}.where([(name, operator, value)])` selects rows",
    "collect": "`{it}.to_table()` has all rows, `{it}.to_polars()` is a lazy frame",
    "to_pandas": "`{it}.to_table().to_pandas()` is a data frame",
}
_OF_SERIES = (
    "abs all any arg_sort cum_sum cumsum describe diff is_in map max mean median min mode n_unique product quantile "
    "replace round shift sort std str sum value_counts var"
)
_COLUMN = {
    **dict.fromkeys(
        _OF_SERIES.split(), "hand it to Polars: `polars.Series({it}).{name}`, or to numpy: `{it}.to_numpy()`"
    ),
    "apply": "hand it to pandas: `{it}.to_pandas().apply(...)`",
    "isin": "hand it to Polars: `polars.Series({it}).is_in(...)`",
    "sort_values": "hand it to Polars: `polars.Series({it}).sort()`",
    "nunique": "hand it to Polars: `polars.Series({it}).n_unique()`",
    "dt": "hand it to Polars: `polars.Series({it}).dt`",
    "cat": "`{it}.dictionary` has the categories, `{it}.indices` the codes",
    "to_polars": "`polars.Series({it})` shares its memory",
    "to_arrow": "`{it}.to_pyarrow()` shares its memory",
    "astype": "`{it}.cast(type)` converts it",
    "dtype": "`{it}.type` has it",
    "shape": "`len({it})` has it",
    "size": "`len({it})` has it",
    "tolist": "`{it}.to_pylist()` has the values",
    "to_list": "`{it}.to_pylist()` has the values",
    "as_py": "`{it}.to_pylist()` has the values",
    "values": "`{it}.to_numpy()` has them",
    "isna": "`{it}.is_null()` has it",
    "isnull": "`{it}.is_null()` has it",
    "notna": "`{it}.is_valid()` has it",
    "fillna": "`{it}.fill_null(value)` does it",
    "dropna": "`{it}.drop_null()` does it",
    "drop_nulls": "`{it}.drop_null()` does it",
    "head": "`{it}[:n]` has the first values",
    "tail": "`{it}[-n:]` has the last values",
}
HABITS = {"table": _ROWS, "batch": _ROWS, "reader": _READER, "scan": _SCAN, "column": _COLUMN}
"""The sentences by what an object is and by the name that it lacks."""


def missing(obj: object, what: str, name: str) -> AttributeError:
    """Return the error for an attribute that an object, which is one of :data:`HABITS`, does not have."""
    text = f"{type(obj).__name__!r} object has no attribute {name!r}"
    sentence = HABITS[what].get(name)
    if sentence is not None:
        text += f"; {sentence.format(it=what, name=name)}"
    return AttributeError(text, name=name, obj=obj)


def no_batch(key: object) -> InvalidType:
    """Return the error for what is no index of a batch of a reader."""
    hint = f"reader.read_all()[{key!r}] is a column" if isinstance(key, str) else None
    return InvalidType(f"the index of a batch must be an int, found {type(key).__name__}", hint=hint)


def no_operator(column: object, other: Any = None) -> NoReturn:
    """Stand for all operators of a column but ``==``: raise InvalidType."""
    raise InvalidType(
        f"{type(column).__name__} has no operators, as shmarrow does not compute",
        hint="column.to_numpy() > 5 is a mask for filter; polars.Series(column) has them all",
    )
