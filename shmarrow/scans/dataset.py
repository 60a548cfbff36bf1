# SPDX-License-Identifier: Apache-2.0
"""Scans as datasets of pyarrow, which DuckDB, DataFusion, Polars and Ibis ask for columns and rows.

Invariants:

* pyarrow applies the filter itself, to every row that it gets. What is understood of it only tells which sources and
  batches are not worth reading; what is not understood tells nothing;
* comparisons are pyarrow's: NaN fulfils ``!=`` alone, and a row for which a filter is null is left out. An engine with
  another order asks for what it needs in these terms, as it does of every dataset;
* columns go to the scan: those that are asked for, and those that the filter names.

pyarrow pickles an expression as an Arrow file of one row: the schema's metadata are its words in the order of a prefix
notation, and the columns its literals, of their types, and its options. So a filter is read as any other Arrow data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import DEFAULT_LIMITS, ShmarrowError, Unsupported, optional
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.ipc.file.footer import footer_bytes
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.layout import Array
from shmarrow.memory import Source
from shmarrow.scans.filters import Condition, Filter, both, comparable, either, together
from shmarrow.types import FloatType, Schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds


_OPERATORS = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_ROWS = 1 << 17
"""Rows that pyarrow filters at once, as far as batches allow it."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def dataset_of(scan: Any) -> ds.Dataset:
    """Make a dataset over a scan; see :meth:`Scan.to_dataset`."""
    optional("pyarrow.dataset")
    return _dataset_class()(scan)


@cache
def _dataset_class() -> Any:
    """The class, which is made when pyarrow is there."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]
        """A dataset whose rows a scan reads.

        What pyarrow asks of a dataset in C++ alone, as for unions of datasets, is answered by a file that does not
        exist, whose name says what to do.
        """

        def __init__(self, scan: Any, filter: Any = None) -> None:
            form, files = ds.IpcFileFormat(), LocalFileSystem()
            no_file = form.make_fragment("(a scan of shmarrow, which only Python can read: use scanner())", files)
            super().__init__([no_file], scan.schema.to_pyarrow(), form, files)
            self.scan, self._filter = scan, filter

        def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ScanScanner:
            """Return a scanner; how far to read ahead is not for it to choose."""
            return self._scanner(columns, filter, **options)

        def _scanner(self, columns: Any, filter: Any, batch_size: int | None = None, **_: Any) -> ScanScanner:
            return ScanScanner(self.scan, columns, self._with(filter), batch_size)

        def _with(self, filter: Any) -> Any:
            if self._filter is None or filter is None:
                return self._filter if filter is None else filter
            return self._filter & filter

        def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
            return self._scanner(columns, filter, **options).to_table()

        def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:
            return self._scanner(columns, filter, **options).to_batches()

        def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
            return self._scanner(columns, filter, **options).head(num_rows)

        def take(self, indices: Any, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
            return self.to_table(columns, filter, **options).take(indices)

        def count_rows(self, filter: Any = None, **options: Any) -> int:
            if self._with(filter) is None:
                return self.scan.count_rows()
            return self._scanner([], filter, **options).count_rows()

        def filter(self, expression: Any) -> Any:
            return ScanDataset(self.scan, self._with(expression))

        def get_fragments(self, filter: Any = None) -> Iterator[Any]:
            """A fragment for each source that may have rows."""
            for split in _skipping(self.scan, self._with(filter)).plan():
                yield ScanFragment(split.scan, self._filter)

        @property
        def files(self) -> list[str]:
            return self.scan.sources

        @property
        def partitioning(self) -> None:
            return None

        def replace_schema(self, schema: Any) -> Any:
            raise Unsupported("a scan keeps its schema", hint="pass another to shmarrow.scan(..., schema=)")

        def sort_by(self, *arguments: Any, **options: Any) -> Any:
            return ds.InMemoryDataset(self.to_table()).sort_by(*arguments, **options)

        def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
            return ds.InMemoryDataset(self.to_table()).join(_in_memory(right_dataset), *arguments, **options)

        def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
            return ds.InMemoryDataset(self.to_table()).join_asof(_in_memory(right_dataset), *arguments, **options)

        def __reduce__(self) -> Any:
            return _unpickled, (self.scan, self._filter)

        def __repr__(self) -> str:
            return f"<Dataset over {self.scan!r}>"

    class ScanFragment(ScanDataset):
        """One source; its scanner takes a schema first, as those of fragments do."""

        def scanner(  # type: ignore[override]
            self, schema: Any = None, columns: Any = None, filter: Any = None, **options: Any
        ) -> ScanScanner:
            return self._scanner(columns, filter, **options)

    def _in_memory(dataset: Any) -> Any:
        return ds.InMemoryDataset(dataset.to_table()) if isinstance(dataset, ScanDataset) else dataset

    return ScanDataset


def _unpickled(scan: Any, filter: Any) -> Any:
    return _dataset_class()(scan, filter)


class ScanScanner:
    """Columns of a scan, and the rows that fulfil a filter, in pyarrow's classes; read any number of times.

    Batches are read and filtered in the thread that asks for them: threads of pyarrow that read ahead, or drop rows,
    abort a process that ends while one of them is in Python.
    """

    def __init__(self, scan: Any, columns: Any, filter: Any, batch_size: int | None) -> None:
        self._part = _skipping(scan, filter)
        self._columns, self._filter = columns, filter
        self._batch_size = batch_size
        self.dataset_schema = scan.schema.to_pyarrow()
        self.projected_schema: pa.Schema = self._of(self.dataset_schema.empty_table()).projected_schema
        expressions = [*columns.values()] if isinstance(columns, dict) else []
        named = [_named(expression) for expression in [*expressions, *([] if filter is None else [filter])]]
        if all(some is not None for some in named):
            wanted = {name for some in named for name in some or ()}
            wanted |= {*scan.schema.names} if columns is None else set() if expressions else {*columns}
            self._part = self._part.select([name for name in dict.fromkeys(scan.schema.names) if name in wanted])

    def _of(self, table: pa.Table) -> ds.Scanner:
        """A scanner of rows in memory."""
        import pyarrow.dataset as ds

        return ds.InMemoryDataset(table).scanner(columns=self._columns, filter=self._filter, use_threads=False)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the batches."""
        import pyarrow as pa

        for batches in together(self._part, _ROWS):
            table = pa.Table.from_batches([batch.to_pyarrow() for batch in batches])
            if self._filter is not None or isinstance(self._columns, dict):
                table = self._of(table).to_table()
            elif self._columns is not None:
                table = table.select(list(self._columns))
            yield from table.to_batches(self._batch_size)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader over the batches."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.to_batches()), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, reading no more than they need."""
        import pyarrow as pa

        batches, left = [], num_rows
        for batch in self.to_batches() if num_rows > 0 else ():
            batches.append(batch[:left])
            left -= batch.num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return the rows at some positions."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum([batch.num_rows for batch in self.to_batches()])


def _skipping(scan: Any, filter: Any) -> Any:
    expression = None if filter is None else _parsed(filter)
    return scan if expression is None else scan._skipping(_filter(expression, scan._full) or ())


# --- expressions --------------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """An expression: a field's name, a literal, or the call of a function."""

    function: str
    arguments: Sequence[Any] = ()
    value: Any = None


def _named(expression: Any) -> set[str] | None:
    """The names of the fields in an expression of pyarrow; None if they are not known."""
    parsed = _parsed(expression)
    return None if parsed is None else set(_fields(parsed))


def _fields(expression: _Call) -> Iterator[str]:
    if expression.function == "field":
        yield expression.value
    for argument in expression.arguments:
        yield from _fields(argument)


def _parsed(expression: Any) -> _Call | None:
    """Read an expression of pyarrow; None if it has another form than is known."""
    try:
        _, (data,) = expression.__reduce__()
        source = Source("an expression", np.frombuffer(data, np.uint8))
        reader = RecordBatchFileReader(source, DEFAULT_LIMITS)
        schema = Reader(footer_bytes(source, DEFAULT_LIMITS)[1], source.name).root("Footer")["schema"]
        words = [
            (item["key"].decode(), item["value"].decode()) for item in schema["custom_metadata"].within(schema.reader)
        ]
        literals = reader.get_batch(0).columns if reader.num_record_batches else []
        parsed, rest = _read(words, literals)
    except (ShmarrowError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError):
        return None
    return parsed if not rest else None


def _read(words: list[tuple[str, str]], literals: Sequence[Array]) -> tuple[_Call, list[tuple[str, str]]]:
    """Read an expression from the first words; returns it, and the words after it."""
    (kind, word), rest = words[0], words[1:]
    if kind == "literal":
        return _Call("literal", (), literals[int(word)]), rest
    if kind == "field_ref":
        return _Call("field", (), word), rest
    if kind == "nested_field_ref":  # the names on the way, of which the first is a column
        return _Call("nested", [_Call("field", (), rest[0][1])]), rest[int(word) :]
    if kind != "call":
        raise ValueError(kind)
    arguments: list[_Call] = []
    options = None
    while rest[0][0] != "end":
        if rest[0][0] == "options":
            options, rest = literals[int(rest[0][1])], rest[1:]
        else:
            argument, rest = _read(rest, literals)
            arguments.append(argument)
    return _Call(word, arguments, options), rest[1:]


def _filter(expression: _Call, schema: Schema) -> Filter | None:
    """Return what an expression demands, as far as it is understood; None for nothing."""
    match expression:
        case _Call("and_kleene" | "and", [left, right]):
            return both(_filter(left, schema), _filter(right, schema))
        case _Call("or_kleene" | "or", [left, right]):
            return either(_filter(left, schema), _filter(right, schema))
        case _Call("if_else", [condition, value, _Call("literal", _, Array() as otherwise)]) if not _is_true(otherwise):
            return both(_filter(condition, schema), _filter(value, schema))
        case _Call(name, [_Call("field", _, column), _Call("literal", _, value)]) if name in _OPERATORS:
            return _comparison(column, _OPERATORS[name], value, schema)
        case _Call(name, [_Call("literal", _, value), _Call("field", _, column)]) if name in _OPERATORS:
            op = _OPERATORS[name]
            return _comparison(column, _MIRRORED.get(op, op), value, schema)
        case _Call("is_valid", [_Call("field", _, column)]) if column in schema:
            return ((Condition(schema.index_of(column), "is not null"),),)
        case _Call("is_null", [_Call("field", _, column)], options) if column in schema:
            nan_too = options is not None and options.field("nan_is_null")[0]
            return None if nan_too else ((Condition(schema.index_of(column), "is null"),),)
        case _Call("is_in", [_Call("field", _, column)], options):
            values = options.field("value_set").flatten()
            return None if values.null_count else _comparison(column, "in", values, schema)
    return None


def _is_true(literal: Array) -> bool:
    return literal.null_count == 0 and literal[0] is not False


def _comparison(name: str, op: str, literal: Array, schema: Schema) -> Filter | None:
    """Return a comparison with literals as a filter; None for those that might be compared in another way."""
    if name not in schema or literal.null_count:
        return None
    column = schema.index_of(name)
    values: Any = comparable(literal, schema.field(column).type)
    if values is None or (isinstance(values.type, FloatType) and np.isnan(values.values).any()):
        return None
    return ((Condition(column, op, values),),)
