# SPDX-License-Identifier: Apache-2.0
"""Previews of batches, tables, schemas and stores, as text.

Invariants:

* only the columns and rows that are shown are read, and only if that is cheap: a column that would have to be fetched,
  or a large one that would have to be decompressed, is not shown. Nothing is counted;
* a preview never raises: a value that cannot be read is shown as the name of its error in angle brackets;
* names and values are untrusted: control characters are escaped.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from shmarrow.errors import counted, printable

ROWS = 10
"""The most rows shown: the first and the last."""
COLUMNS = 20
"""The most columns shown."""
_CELL = 32
_VALUES = 20
"""The most values shown of a nested cell."""
_NULL_BATCHES = 10
"""The most batches whose null counts are added up."""
_GAP = "…"


class _Shown(NamedTuple):
    """A column to show; ``cells`` has a text for each row, None for null."""

    name: str
    type: str
    nulls: str
    cells: list[str | None]
    right: bool


_Row = tuple[Any, int]
"""A batch, and the position of a row in it."""


# --- batches and tables -----------------------------------------------------------------------------------------


def columns_text(data: Any) -> str:
    """Return a batch or a table as text, at most as wide as the terminal."""
    return "\n".join([title(data), *table_lines(data)])


def table_lines(data: Any, most: int = ROWS) -> list[str]:
    """Return a header and at most ``most`` rows of a batch or a table as lines, at most as wide as the terminal."""
    width = shutil.get_terminal_size((100, 24)).columns
    rows, gap = _rows(data, most)
    shown, left_out = _fitting(data, rows, max(width, 20))
    if gap:
        for column in shown:
            column.cells.insert((most + 1) // 2, _GAP)
    found = _grid(shown)
    if left_out:
        found.append(f"columns {left_out} are not shown: they would have to be fetched or decompressed")
    return found


def title(data: Any) -> str:
    """Describe a batch or a table in one line: its size."""
    kind = type(data).__name__
    text = f"<shmarrow.{kind} of {counted(data.num_rows, 'row')}, {counted(data.num_columns, 'column')}"
    batches = getattr(data, "batches", None)
    return f"{text}>" if batches is None or len(batches) == 1 else f"{text}, in {_batches(len(batches))}>"


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number} batches"


def _ends(count: int, most: int) -> tuple[range, range]:
    """Return the first and the last numbers below ``count``, at most ``most``."""
    if count <= most:
        return range(count), range(count, count)
    half = most // 2
    return range(most - half), range(count - half, count)


def _rows(data: Any, most: int = ROWS) -> tuple[list[_Row], bool]:
    """Return the rows to show, each in its batch, and whether rows are left out after the first half."""
    front, back = _ends(data.num_rows, most)
    found = []
    for part in (front, back):
        if part:
            piece = data.slice(part.start, len(part))
            for batch in getattr(piece, "batches", (piece,)):
                found += [(batch, i) for i in range(batch.num_rows)]
    return found, bool(back)


def _column(data: Any, index: int, rows: Sequence[_Row]) -> _Shown:
    name, type, right = _head(data, index)
    cells = [_cell(batch, index, i) for batch, i in rows]
    return _Shown(name, type, _nulls(data, index), cells, right)


def _head(data: Any, index: int) -> tuple[str, str, bool]:
    """Return name and type of a column, and whether its values are numbers."""
    try:
        field = data._schema.field(index)
        return one_line(field.name, _CELL), one_line(str(field.type), _CELL), _is_number(field.type)
    except Exception as error:
        return f"<{error.__class__.__name__}>", "", False


def _cell(batch: Any, index: int, row: int) -> str | None:
    if not batch._is_cheap(index):
        return "?"
    try:
        found: str = batch.column(index)._slot_text(row, _VALUES)
    except Exception as error:  # untrusted bytes; and a user's type may raise anything when it converts them
        return f"<{type(error).__name__}>"
    return None if found == "null" else one_line(found, _CELL)


def _nulls(data: Any, index: int) -> str:
    """Return the number of nulls as text; empty if it is 0, or not known without counting."""
    batches = getattr(data, "batches", (data,))
    total = 0
    for batch in batches if len(batches) <= _NULL_BATCHES else ():
        try:
            known = batch.column(index)._null_count if batch._is_cheap(index) else -1
        except Exception:
            return ""
        if known < 0:
            return ""
        total += known
    return counted(total, "null") if total else ""


def _is_number(type: Any) -> bool:
    return type.layout == "primitive" and type.storage.base.kind in "iuf"


# --- text -------------------------------------------------------------------------------------------------------


def _fitting(data: Any, rows: Sequence[_Row], width: int) -> tuple[list[_Shown], str]:
    """Return as many of the first and the last columns as fit, and the names of those whose values are not shown."""
    count = data.num_columns
    front, back = _ends(count, COLUMNS)
    shown: dict[int, _Shown] = {}
    left = width - (0 if count <= 1 else len(_GAP) + 2)
    for index in _alternately(front, back):
        name, type, _ = _head(data, index)
        if max(text_width(name), text_width(type)) > left and shown:
            break
        column = _column(data, index, rows)
        left -= _width_of(column)
        if left < 0 and shown:
            break
        left -= 2
        shown[index] = column
    hidden = [shown[i].name for i in sorted(shown) if "?" in shown[i].cells]
    found, previous = [], -1
    for index in [*sorted(shown), count]:
        if index != previous + 1:
            found.append(_Shown(_GAP, _GAP, "", [_GAP] * len(rows), False))
        if index < count:
            found.append(shown[index])
        previous = index
    return found, ", ".join(hidden)


def _alternately(front: range, back: range) -> list[int]:
    """The first column, the last one, the second one, and so on."""
    return [i for pair in zip_longest(front, reversed(back)) for i in pair if i is not None]


def _grid(shown: Sequence[_Shown]) -> list[str]:
    if not shown:
        return []
    heads = [[column.name for column in shown], [column.type for column in shown]]
    if any(column.nulls for column in shown):
        heads.append([column.nulls for column in shown])
    rows = [
        ["null" if cell is None else cell for cell in row]
        for row in zip(*[column.cells for column in shown], strict=True)
    ]
    return aligned(heads, rows, [column.right for column in shown])


def aligned(
    heads: Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    gap: str = "  ",
    rule: str = "-",
) -> list[str]:
    """Return the lines of a table: heads, a rule under them, and rows; ``right`` says which columns hold numbers."""
    widths = [max(map(text_width, cells)) for cells in zip(*heads, *rows, strict=True)]
    return [
        gap.join([_padded(*each) for each in zip(line, widths, right, strict=True)]).rstrip()
        for line in (*heads, [rule * width for width in widths], *rows)
    ]


def _width_of(column: _Shown) -> int:
    cells = [4 if cell is None else text_width(cell) for cell in column.cells]
    return max(text_width(column.name), text_width(column.type), text_width(column.nulls), *cells, 0)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if right else text + space


def text_width(text: str) -> int:
    """Return the width of a text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum([_width_of_char(char) for char in text])


def _width_of_char(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


def one_line(text: str, most: int) -> str:
    """Return a text without control characters, cut to a width."""
    text = printable(text[: 4 * most])
    if text_width(text) <= most:
        return text
    taken = 0
    for i, char in enumerate(text):
        taken += _width_of_char(char)
        if taken > most - 1:
            return text[:i] + _GAP
    return text


# --- one line ---------------------------------------------------------------------------------------------------


def parse_size(text: str) -> int | None:
    """Return the number of bytes that a text such as ``4096``, ``64K`` or ``2GiB`` stands for; None for other text."""
    found = re.fullmatch(r"([0-9]{1,18})\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    return None if found is None else int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


def size(nbytes: int) -> str:
    """Format a number of bytes: ``512 bytes``, ``1.5 MiB``."""
    if nbytes < 1024:
        return counted(nbytes, "byte")
    units = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min((nbytes.bit_length() - 1) // 10, len(units))
    return f"{nbytes / 1024**power:.1f} {units[power - 1]}"


def line(thing: Any, what: str, *facts: str) -> str:
    """Return ``<Class of NAME: fact, fact>`` without the facts that are empty."""
    known = ", ".join([fact for fact in facts if fact])
    kind = thing if isinstance(thing, str) else type(thing).__name__
    return printable(f"<{kind} {what}{': ' if known else ''}{known}>")


def holding(batches: int | None, rows: int | None, columns: int) -> tuple[str, str, str]:
    """Return the numbers of batches, rows and columns as facts for :func:`line`; empty if unknown."""
    return (
        "" if batches is None else _batches(batches),
        "" if rows is None else counted(rows, "row"),
        counted(columns, "column"),
    )
