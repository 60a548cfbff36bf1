# SPDX-License-Identifier: Apache-2.0
"""What users of other libraries type first and shmarrow has not: one sentence each that says what does it.

What is asked for by ``hasattr``, ``copy``, ``pickle`` or a protocol gets AttributeError, as ever; a name that a class
has is never looked up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from shmarrow.errors import InvalidType

_POLARS = "hand it to Polars: `polars.DataFrame({it})"
_SERIES = "hand it to Polars: `polars.Series({it})"
_SQL = "duckdb.sql reads a variable by its name: `duckdb.sql('FROM {it} WHERE ...')`"
_ROWS = "table batch reader scan"
_STORE = "`shmarrow.Store(name)` has it: objects by name, for other processes, too"
HINTS = (  # kinds of objects, names, sentence; of several rows the first counts
    ("scan", "num_rows height count len row_count shape", "`{it}.count_rows()` counts them"),
    ("scan", "to_arrow", "`{it}.to_table().to_pyarrow()` is a pyarrow.Table"),
    ("scan", "to_pandas toPandas df apply iterrows", "`{it}.to_table().to_pandas()` is a data frame"),
    ("scan", "limit show display", "`{it}.head(n)` has the first rows"),
    ("scan", "files paths num_files", "`{it}.sources` has the paths and names"),
    ("scan", "columns column_names names", "`{it}.schema.names` has them"),
    ("scan", "batches iter_batches to_batches get_batches", "`for batch in {it}` goes through them"),
    ("scan", "cache persist", "files are mapped, and the system keeps what was read; `{it}.to_table()` has all rows"),
    ("scan", "dataset", "`{it}.to_dataset()` is a pyarrow.dataset.Dataset that reads what a query needs"),
    ("scan", "drop", "`{it}.select(names)` has the other columns"),
    ("scan", "explain", "`{it}.plan()` says what is read"),
    ("scan", "to_duckdb sql",
     "after `rows = {it}.to_dataset()`, `duckdb.sql('FROM rows WHERE ...')` reads what a query needs"),
    ("scan", "agg aggregate corr describe diff drop_duplicates drop_nulls explode group_by groupby join join_asof lazy "
     "max mean median merge min n_unique pivot quantile rename sample sort sort_by sort_values std sum tail unique "
     "unpivot value_counts var with_columns",
     "`{it}.to_polars()` is a lazy frame, which reads what a query needs"),
    ("scan", "filter query", "`{it}.where([(name, operator, value)])` selects rows"),
    ("scan", "collect read fetch fetchall fetch_all to_numpy",
     "`{it}.to_table()` has all rows, `{it}.to_polars()` is a lazy frame"),
    ("reader scan", "head limit", "`{it}.read_all().head(n)` has the first rows"),
    ("reader scan", "filter select column columns slice to_pydict to_pylist to_pyarrow",
     "`{it}.read_all().{name}` has it"),
    ("reader", "column_names names", "`{it}.schema.names` has them"),
    ("reader", "read", "`{it}.read_all()` reads all batches, `for batch in {it}` one after another"),
    (_ROWS, "aggregate corr describe diff explode group_by group_by_dynamic iter_rows join join_asof lazy max mean "
     "median min n_unique pivot product quantile sample sort std sum tail transpose unique unpivot value_counts var "
     "with_columns", _POLARS + ".{name}(...)`"),
    (_ROWS, "groupby", _POLARS + ".group_by(...)`"),
    (_ROWS, "merge", _POLARS + ".join(...)`"),
    (_ROWS, "sort_by sort_values", _POLARS + ".sort(...)`"),
    (_ROWS, "drop_duplicates", _POLARS + ".unique()`"),
    (_ROWS, "dropna fillna", _POLARS + "` has drop_nulls() and fill_null(value)"),
    (_ROWS, "apply", "hand it to pandas: `{it}.to_pandas().apply(...)`"),
    (_ROWS, "iterrows itertuples rows", "`{it}.to_pylist()` has the rows as dicts"),
    (_ROWS, "save to_file to_ipc to_feather write_ipc write_feather", "`shmarrow.write({it}, 'x.arrow')` writes it"),
    (_ROWS, "share put publish", "`shmarrow.Store(store)[name] = {it}` puts it where other processes get it"),
    ("table batch", "where", "`{it}.filter(mask)` selects rows; `shmarrow.scan(path).where(...)` reads only some"),
    ("table batch", "limit", "`{it}.head(n)` has the first rows"),
    ("table batch", "show display", "`print({it})` shows it"),
    ("table batch", "collect fetchall", "it has its rows: `{it}.to_pylist()` lists them"),
    ("table", "append concat", "`shmarrow.concat_tables([{it}, more])` has the rows of both"),
    ("batch", "append concat", "`shmarrow.concat_batches([{it}, more])` has the rows of both"),
    ("table batch", "values to_numpy", "`{it}[name].to_numpy()` has those of a column"),
    ("table batch", "to_dict", "`{it}.to_pydict()` has the columns, `{it}.to_pylist()` the rows"),
    ("table batch", "map", _POLARS + ".map_rows(...)`"),
    ("table batch", "toPandas", "`{it}.to_pandas()` is a data frame"),
    (_ROWS, "to_polars", "`polars.DataFrame({it})` shares its memory"),
    (_ROWS, "to_duckdb sql query", _SQL),
    ("table batch column", "to_arrow", "`{it}.to_pyarrow()` shares its memory"),
    (_ROWS, "to_parquet write_parquet", "`shmarrow.write({it}, 'x.parquet')` writes it"),
    (_ROWS, "to_csv write_csv", "`polars.DataFrame({it}).write_csv(path)` writes it"),
    (_ROWS, "names", "`{it}.schema.names` has them"),
    (_ROWS, "dtypes", "`{it}.schema.types` has them"),
    (_ROWS, "height width", "`{it}.num_rows` and `len({it}.schema)` have it"),
    (_ROWS, "iloc loc",
     "`{it}[start:stop]`, `{it}.take(positions)`, `{it}.filter(mask)`, `{it}.select(names)`"),
    ("column", "abs all any arg_sort cum_sum cumsum describe diff is_in map max mean median min mode n_unique product "
     "quantile replace round shift sort std str sum value_counts var dt",
     _SERIES + ".{name}`, or to numpy: `{it}.to_numpy()`"),
    ("column", "isin nunique sort_values apply", _SERIES + "` has is_in, n_unique, sort, map_elements"),
    ("column", "cat", "`{it}.dictionary` has the categories, `{it}.indices` the codes"),
    ("column", "to_polars", "`polars.Series({it})` shares its memory"),
    ("column", "astype", "`{it}.cast(type)` converts it"),
    ("column", "dtype", "`{it}.type` has it"),
    ("column", "shape size", "`len({it})` has it"),
    ("column", "tolist to_list as_py", "`{it}.to_pylist()` has the values"),
    ("column", "values", "`{it}.to_numpy()` has them"),
    ("column", "isna isnull", "`{it}.is_null()` has it"),
    ("column", "notna", "`{it}.is_valid()` has it"),
    ("column", "fillna dropna drop_nulls", "`{it}.fill_null(value)` and `{it}.drop_null()` do it"),
    ("column", "head tail", "`{it}[:n]` has the first values, `{it}[-n:]` the last"),
    ("frame", "toPandas to_pandas", "`{it}.read_all().to_pandas()` is a data frame"),
    ("frame", "toArrow to_arrow to_pyarrow", "`{it}.read_all().to_pyarrow()` is a pyarrow.Table"),
    ("frame", "collect to_table head", "`{it}.read_all()` is a table over the shared memory"),
    ("frame files", "count shape", "`{it}.num_rows` has the number of rows"),
    ("frame files", "columns column_names dtypes names", "`{it}.schema.names` and `{it}.schema.types` have them"),
    ("frame", "unpersist delete close release", "`{it}.destroy()` removes it from shared memory"),
    ("frame files", "show printSchema filter where groupBy agg sql write select",
     "`{it}.to_df(columns)` is a DataFrame: `{it}.to_df().{name}`"),
    ("frame", "join", "`lookup(df, {it}, on=...)` adds its columns to a DataFrame; `{it}.index(on)` is for functions"),
    ("frame", "toDF", "`{it}.to_df(columns)` is a DataFrame"),
    ("frame", "cache persist", "it is in shared memory already; `{it}.destroy()` removes it"),
    ("frame", "withColumn", "`{it}.with_columns(function, schema)` adds columns"),
    ("frame files", "mapInArrow mapInPandas", "`{it}.map(function, schema)` calls it with each partition"),
    ("files", "toPandas to_pandas toArrow collect to_table head read_all", "`shmarrow.scan(source)` reads them here"),
    ("files", "join with_columns withColumn", "`{it}.map(function, schema)` does it, with `frame.index(on)` inside"),
    ("store", "list ls", "`{it}.keys()` lists the names"),
    ("store", "remove pop", "`{it}.delete(name)` removes an object, `{it}.take(name)` returns it, too"),
    ("store", "add set save write publish update", "`{it}[name] = value` or `{it}.put(name, value)` puts an object"),
    ("store", "load open read", "`{it}[name]` or `{it}.get(name)` gets an object"),
    ("store", "append", "objects do not change: put the next under another name, and `{it}.scan(pattern)` reads all"),
    ("store", "contains has", "`name in {it}` says whether it is there"),
    ("store", "values", "`for name, value in {it}.items()` has them"),
    ("store", "unlink", "`{it}.destroy()` removes it"),
    ("ring", "push append send enqueue publish add", "`{it}.put(frame)` adds a frame"),
    ("ring", "pop recv receive get read dequeue subscribe peek", "`for frame in {it}` or `next({it})` waits for one"),
    ("ring", "unlink destroy", "`{it}.close()` of the writer removes it"),
    ("ring", "latest", "`next({it})` is the next frame; with the policy 'latest', slow readers skip to the newest"),
    ("shmarrow", "read_csv read_parquet read_json scan_csv scan_parquet",
     "another library reads it: `shmarrow.table(polars.read_…(path))`; `shmarrow.convert` makes it an Arrow file"),
    ("shmarrow", "from_pandas from_polars from_dict from_arrow from_pydict from_pylist DataFrame to_arrow",
     "`shmarrow.table(data)` takes data of any library"),
    ("shmarrow", "from_numpy from_list asarray", "`shmarrow.array(values)` takes ndarrays and lists"),
    ("shmarrow", "load read", "`shmarrow.open(where)` opens a file, `shmarrow.load_tensors(path)` tensors"),
    ("shmarrow", "read_arrow read_feather read_ipc read_table mmap memory_map view",
     "`shmarrow.open(path)` maps a file, `shmarrow.scan(paths)` many as one table"),
    ("shmarrow", "Dataset dataset open_dataset open_dir scan_ipc where filter",
     "`shmarrow.scan(directory).where([(name, operator, value)])` reads many files as one table"),
    ("shmarrow", "save append dump write_table write_feather write_ipc write_csv write_parquet write_dataset",
     "`shmarrow.write(data, where)` writes a file, of the format of its suffix, or a directory"),
    ("shmarrow", "concat", "`shmarrow.concat_tables(tables)`, `shmarrow.concat_batches(batches)`"),
    ("shmarrow", "sql query", "DuckDB does it: after `rows = shmarrow.scan(path).to_dataset()`, "
     "`duckdb.sql('FROM rows WHERE ...')`"),
    ("shmarrow", "connect", "`shmarrow.Store(name)` opens a store; there is no server"),
    ("shmarrow", "attach create delete get list ls publish put remove share", _STORE),
    ("shmarrow", "Queue queue channel", "`shmarrow.Ring(name, like=frame, slots=4)` is one, for processes"),
    ("shmarrow", "DataLoader loader", "`BatchDataset(data).loader(batch_size=32)` of shmarrow.torch is a DataLoader"),
)  # fmt: skip


def no_attribute(kind: str, name: str, text: str, obj: object = None) -> AttributeError:
    """Return the error for a name that an object, or the package, does not have."""
    for kinds, names, sentence in HINTS:
        if kind in kinds.split() and name in names.split():
            text += f"; {sentence.format(it=kind, name=name)}"
            break
    return AttributeError(text, name=name, obj=obj)


class Hinted:
    """Base of the classes that users meet: a name that it lacks and that other libraries have is explained."""

    __slots__ = ()
    _kind: ClassVar[str]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self._kind, name, f"{type(self).__name__!r} object has no attribute {name!r}", self)


class WithoutOperators(Hinted):
    """Base of columns, which have no operators but ``==``."""

    __slots__ = ()
    _kind = "column"

    if not TYPE_CHECKING:

        def _refuse(self, other: Any = None) -> NoReturn:
            """Raise InvalidType: columns have no operators."""
            raise InvalidType(
                f"{type(self).__name__} has no operators, as shmarrow does not compute",
                hint="column.to_numpy() > 5 is a mask for filter; polars.Series(column) has them all",
            )

        __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
        __truediv__ = __rtruediv__ = __and__ = __or__ = __invert__ = __neg__ = _refuse


def no_batch(key: object) -> InvalidType:
    """Return the error for what is no index of a batch of a reader."""
    hint = f"reader.read_all()[{key!r}] is a column" if isinstance(key, str) else None
    return InvalidType(f"the index of a batch must be an int, found {type(key).__name__}", hint=hint)
