"""Columns as text: CSV cells and JSON lines, by pyarrow's functions on whole columns.

Invariants:

* output can be read back: numbers keep all digits, floats stay floats, times are ISO 8601;
* values without a text form are refused with the name and type of the column: CSV cannot represent nested types, JSON
  cannot represent NaN, and neither can represent bytes that are not UTF-8, intervals and unions.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shmarrow.batch import RecordBatch
from shmarrow.errors import InvalidData, InvalidType, ShmarrowError, at

_TEXT = pa.large_string()
_ESCAPES = {
    "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t",
    **{chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in "\n\r\t"},
}  # fmt: skip
_ESCAPED = '["\\\\\\x00-\\x1f]'


def decoded(batch: RecordBatch) -> Any:
    """Convert to a pyarrow batch, decoding run-end encoded columns, which few formats support."""
    try:
        found = batch.to_pyarrow()
    except ShmarrowError:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            with at("column", field.name):
                column.to_pyarrow()
        raise
    columns = [
        pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column for column in found.columns
    ]
    fields = [field.with_type(column.type) for field, column in zip(found.schema, columns, strict=True)]
    return pa.record_batch(columns, schema=pa.schema(fields, found.schema.metadata))


def as_cells(batch: RecordBatch) -> Any:
    """Convert to a pyarrow batch whose column types pyarrow's CSV writer accepts.

    Raises
    ------
    InvalidData
        If bytes are not UTF-8.
    """
    found = decoded(batch)
    columns = [_cells(column, field.name) for column, field in zip(found.columns, found.schema, strict=True)]
    return pa.record_batch(columns, names=found.schema.names)


def _cells(column: Any, name: str) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        return _cells(column.storage, name)
    if pa.types.is_dictionary(column.type):
        return _cells(column.dictionary, name).take(column.indices)
    if _is_text(column.type):
        return _as_text(column, name)
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        raise InvalidType(f"column {name!r}: CSV cannot hold {column.type}; write jsonl, parquet or arrow")
    return column


def _is_text(type: Any) -> bool:
    kinds = ("string", "binary")
    return any(getattr(pa.types, f"is_{size}{kind}")(type) for kind in kinds for size in ("", "large_")) or any(
        check(type) for check in (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    )


def _as_text(column: Any, name: str) -> Any:
    try:
        return column.cast(_TEXT)
    except pa.ArrowInvalid:
        raise InvalidData(
            f"column {name!r} has bytes that are not UTF-8, which text formats cannot hold; write arrow or parquet"
        ) from None


def json_lines(batch: RecordBatch) -> Any:
    """Format a batch as JSON lines, in bytes.

    Raises
    ------
    InvalidType
        If JSON cannot represent the type of a column.
    InvalidData
        If JSON cannot represent a value: NaN, infinity, bytes that are not UTF-8.
    """
    found = decoded(batch)
    if not found.num_columns:
        return b"{}\n" * found.num_rows
    texts = [_json(column, field.name) for column, field in zip(found.columns, found.schema, strict=True)]
    lines = _object(found.schema.names, texts, "}\n")
    ends = lines.buffers()[1]
    if not len(lines) or ends is None:
        return b""
    first, last = (lines.offset, lines.offset + len(lines))
    start, end = (int.from_bytes(ends[8 * at : 8 * at + 8], "little") for at in (first, last))
    return memoryview(lines.buffers()[2])[start:end]


def _object(names: list[str], texts: list[Any], end: str) -> Any:
    """Join the text of values to a JSON object per row."""
    pieces: list[Any] = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        key = f"{'{' if not number else ','}{json.dumps(name, ensure_ascii=False)}:"
        pieces += [_scalar(key), text]
    return pc.binary_join_element_wise(*pieces, _scalar(end), _scalar(""))


def _scalar(text: str) -> Any:
    return pa.scalar(text, _TEXT)


def _json(column: Any, name: str) -> Any:
    """Format each value as JSON; nulls as ``null``."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _json(column.storage, name)
    if pa.types.is_dictionary(kind):
        return pc.fill_null(_json(column.dictionary, name).take(column.indices), _scalar("null"))
    if pa.types.is_run_end_encoded(kind):
        return _json(pc.run_end_decode(column), name)
    if pa.types.is_map(kind):
        pairs = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        return _json(column.cast(pa.list_(pairs)), name)
    if pa.types.is_struct(kind):
        fields = [kind.field(number).name for number in range(kind.num_fields)]
        if len(set(fields)) < len(fields):
            raise InvalidType(f"column {name!r} has two fields of one name, which a JSON object cannot hold: {kind}")
        parts = [_json(child, f"{name}.{each}") for each, child in zip(fields, column.flatten(), strict=True)]
        whole = _object(fields, parts, "}") if parts else pa.repeat(_scalar("{}"), len(column))
        return pc.if_else(column.is_valid(), whole, _scalar("null"))
    if _is_list(kind):
        return _lists(column, name)
    text = _leaf(column, name)
    return pc.fill_null(text, _scalar("null"))


def _is_list(kind: Any) -> bool:
    names = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
    return any(getattr(pa.types, f"is_{each}")(kind) for each in names)


def _lists(column: Any, name: str) -> Any:
    values = _json(column.flatten(), f"{name}[]")
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    joined = pc.binary_join(pa.LargeListArray.from_arrays(ends, values), _scalar(","))
    whole = pc.binary_join_element_wise(_scalar("["), joined, _scalar("]"), _scalar(""))
    return pc.if_else(column.is_valid(), whole, _scalar("null"))


def _leaf(column: Any, name: str) -> Any:
    kind = column.type
    if pa.types.is_floating(kind):
        return _floats(column, name)
    if _is_text(kind):
        return _quoted(_escaped(_as_text(column, name)))
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_duration(kind):
        return column.cast(_TEXT)
    if pa.types.is_decimal(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)):
        try:
            return _quoted(column.cast(_TEXT))
        except pa.ArrowException as error:
            raise InvalidType(f"column {name!r}: pyarrow has no text for {kind}: {error}") from None
    raise InvalidType(f"column {name!r}: JSON cannot hold {kind}")


def _floats(column: Any, name: str) -> Any:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is False:
        row = pc.index(finite, False).as_py()
        raise InvalidData(
            f"column {name!r} has {column[row]} in row {row} of a batch, which JSON cannot hold; write null "
            "instead, or another format"
        )
    text = column.cast(_TEXT)
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    return pc.if_else(whole, pc.binary_join_element_wise(text, _scalar(".0"), _scalar("")), text)


def _quoted(text: Any) -> Any:
    return pc.binary_join_element_wise(_scalar('"'), text, _scalar('"'), _scalar(""))


def _escaped(text: Any) -> Any:
    if not pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        return text
    for plain, escape in _ESCAPES.items():
        text = pc.replace_substring(text, plain, escape)
    return text
