"""Our API next to pyarrow's: what stands here for each public name of pyarrow that is in scope.

The tables are data. A call is written as for pyarrow and evaluated twice, with ``pa`` as pyarrow and as shmarrow; the
results are compared by value (``test_api``). ``python tests/support/api.py`` writes the page docs/pyarrow.md from the
tables.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from api_classes import CLASSES
from api_files import FILES, NOTES
from api_kinds import Class, Entry, Instead, Same
from api_module import MODULE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pyarrow.md"

NAMES = """\
numbers = pa.array([3, None, 1, 1], pa.int8())
words = pa.array(["a", None, "b", "a"])
lists = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16()))
pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))
maps = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int8()))
structs = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], pa.struct([("x", pa.int8()), ("y", pa.string())]))
mask = pa.array([True, None, False, True])
masked = pa.array([True, False])
encoded = words.dictionary_encode()
chunks = pa.chunked_array([[1, None], [], [2, 1]], pa.int32())
schema = pa.schema([pa.field("n", pa.int8(), metadata={"unit": "m"}), pa.field("s", pa.string())], metadata={"k": "v"})
field = pa.field("n", pa.int8(), nullable=False, metadata={"unit": "m"})
batch = pa.record_batch([numbers, words], schema=schema)
table = pa.Table.from_batches([batch, batch.slice(1, 2)])
stream = io.BytesIO()
with pa.ipc.new_stream(stream, schema) as writer:
    writer.write_batch(batch)
    writer.write_table(table)
file = io.BytesIO()
with pa.ipc.new_file(file, schema) as writer:
    writer.write(batch)
    writer.write(table)
stream, file = stream.getvalue(), file.getvalue()
tensor = pa.Tensor.from_numpy(np.arange(6, dtype="f4").reshape(2, 3), dim_names=["row", "column"])
ones, names = np.array([1.5, 2.5]), ["row", "column"]
coo = pa.SparseCOOTensor.from_numpy(ones, np.array([[0, 1], [1, 0]]), (2, 3), names)
csr = pa.SparseCSRMatrix.from_numpy(ones, np.array([0, 1, 2]), np.array([1, 0]), (2, 3), names)
csc = pa.SparseCSCMatrix.from_numpy(ones, np.array([0, 1, 2, 2]), np.array([1, 0]), (2, 3), names)
csf = pa.SparseCSFTensor.from_numpy(
    ones, [np.array([0, 1, 2])], [np.array([0, 1]), np.array([1, 0])], (2, 3), [0, 1], names
)
"""
"""The objects that the calls refer to."""


SECTIONS: dict[str, dict[str, Entry]] = {"": MODULE, **CLASSES, **FILES}
"""The tables by the class or module of pyarrow."""


def find(table: dict[str, Entry], name: str) -> Entry | None:
    """The entry of a name: its own, or one whose pattern it fits."""
    return table.get(name) or next((entry for pattern, entry in table.items() if fnmatchcase(name, pattern)), None)


# --- the page ----------------------------------------------------------------------------------------------------

INTRODUCTION = """\
# For users of pyarrow

Names and arguments match pyarrow's wherever the behaviour does. This page is written from the tables of
`tests/support/api.py` by `make docs`, and the tests call every name of it with both libraries and compare the results:
`pa` in a call is pyarrow, or `import shmarrow as pa`. A test fails if a name of pyarrow, or a member of one of its
classes, is missing from this page.

What differs throughout: values are Python's own, there are no scalars; nothing is rounded, wrapped or cut silently
([casts](casts.md)); arguments named `memory_pool` do not exist; errors are those of shmarrow. shmarrow keeps data, it
does not compute: there is no sorting, grouping, joining or arithmetic.

The calls refer to these names:

```text
"""


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _row(entry: Entry) -> str:
    """Return the page's text for an entry."""
    if isinstance(entry, Same):
        return f"the same: {_code(entry.calls[0])}"
    if isinstance(entry, Instead):
        where = "" if entry.theirs == entry.ours else f"{_code(entry.ours)} for {_code(entry.theirs)}: "
        return where + entry.reason
    if isinstance(entry, Class):
        return f"{_code(entry.ours)}: {entry.reason}"
    return f"not here: {entry.reason}"


def page() -> str:
    """The page as it should be."""
    lines = [INTRODUCTION + NAMES + "```\n"]
    for section, table in SECTIONS.items():
        lines += [
            f"## {f'`pyarrow.{section}`' if section else 'The module'}",
            "",
            *([NOTES[section], ""] if section in NOTES else []),
            "| pyarrow | shmarrow |",
            "| --- | --- |",
        ]
        rows: dict[str, list[str]] = {"the same": ["every other `is_...`"]} if section == "types" else {}
        for name, entry in table.items():
            rows.setdefault(_row(entry), []).append(_code(name))
        lines += [f"| {', '.join(names)} | {row} |" for row, names in rows.items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
