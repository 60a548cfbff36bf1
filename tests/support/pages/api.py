"""Our API next to pyarrow's: what stands here for each public name of pyarrow that is in scope.

The tables are data. What they do not name is the same: ``test_api`` checks that it is here. A call is written as for
pyarrow and evaluated twice, with ``pa`` as pyarrow and as shmarrow; the results are compared by value.
``make docs`` writes the page docs/pyarrow.md from the tables.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from api_classes import CLASSES
from api_files import FILES, NOTES
from api_kinds import INSIDE, Class, Entry, Instead, Out
from api_module import MODULE
from environment import ROOT

PAGE = ROOT / "docs" / "pyarrow.md"

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

Names and arguments match pyarrow's wherever the behaviour does: of `pyarrow`, its classes, `pyarrow.types` and
`pyarrow.ipc`, each name that this page does not list is here, too, and means the same. The tests run code with both
libraries and compare the results, and fail if a name of pyarrow is neither here nor on this page. `make docs` writes it
from the tables of `tests/support/pages/api.py`.

Parts of pyarrow's build, runtime and inside, such as `build_info` and `cpu_count`, are neither here nor listed.

Throughout: values are Python's own, not scalars; nothing is rounded, wrapped or cut silently ([casts](casts.md));
errors are shmarrow's, each also one of Python's; there is no argument `memory_pool`. shmarrow stores data and does not
compute: for sorting, grouping, joining and arithmetic, and for `pyarrow.compute`, `dataset`, `parquet` and `flight`,
hand the data to pyarrow, Polars or DuckDB.
"""


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _names(names: list[str]) -> str:
    return ", ".join(map(_code, names))


def page() -> str:
    """The page as it should be: what is not the same, the names of one reason in one row."""
    different: dict[str, tuple[Instead, list[str]]] = {}
    by_class: dict[tuple[str, str], list[str]] = {}
    out: dict[str, list[str]] = {}
    for section, table in SECTIONS.items():
        for name, entry in table.items():
            full = f"{section}.{name}" if section else name
            if isinstance(entry, Instead) and entry.reason:
                different.setdefault(entry.reason, (entry, []))[1].append(full)
            elif isinstance(entry, Class):
                ours = "types" if entry.ours == f"types.{name}" else entry.ours
                by_class.setdefault((ours, entry.reason), []).append(full)
            elif isinstance(entry, Out):
                out.setdefault(entry.reason, []).append(full)
    lines = [INTRODUCTION, "## Different", "", "| pyarrow | what differs | for example |", "| --- | --- | --- |"]
    for reason, (entry, names) in different.items():
        example = "" if entry.theirs == entry.ours else f"{_code(entry.ours)} for {_code(entry.theirs)}"
        lines.append(f"| {_names(names)} | {reason} | {example} |")
    lines += [
        "",
        *(f"- {note}" for note in NOTES),
        "",
        "## Classes",
        "",
        "| pyarrow | shmarrow | |",
        "| --- | --- | --- |",
    ]
    reasons: set[str] = set()
    for (ours, reason), names in by_class.items():
        where = f"the same name in {_code(ours)}" if ours == "types" else _code(ours)
        lines.append(f"| {_names(names)} | {where} | {reason if reason not in reasons else ''} |")
        reasons.add(reason)
    lines += ["", "## Not here", "", "| pyarrow | why |", "| --- | --- |"]
    lines += [f"| {_names(names)} | {reason} |" for reason, names in out.items() if reason != INSIDE.reason]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
