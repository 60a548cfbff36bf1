"""Arrow's golden files: one logical content in several forms, by several implementations, versions and byte orders.

Invariants: file and stream of one content are equal; what we write of it, in every form, pyarrow reads as it reads
the original, and so do we; what full validation says of each is data.
"""

from __future__ import annotations

from pathlib import Path

import forms
import pyarrow as pa
import pytest
from golden import CONTENTS, NAMES, READERS, path, read

import shmarrow as sa

BREAK_RULES = {
    "0.14.1/datetime": "a date64 must be a whole number of days",
    "0.14.1/decimal": "expected at most 3 digits",
    "1.0.0-littleendian/datetime": "a date64 must be a whole number of days",
    "1.0.0-littleendian/decimal": "expected at most 3 digits",
    "1.0.0-littleendian/decimal256": "expected at most 37 digits",
}
"""The contents whose values break the rules of their types, made at random; still they are read."""

BEYOND_PYTHON = {
    "0.14.1/datetime": "which is not a whole day",
    "1.0.0-littleendian/datetime": "which is not a whole day",
    "cpp-21.0.0/datetime": "which is finer than datetime's unit, the microsecond",
    **{f"{release}/interval": "days of a timedelta" for release in CONTENTS},
}
"""The contents with values, made at random, that Python's ``datetime`` does not have."""

RENAMED = {"1.0.0-littleendian/map_non_canonical"}
"""The contents whose writers gave the fields of a map other names in the stream than in the file; all else is equal."""

NOT_SWAPPED_BY_PYARROW = {"cpp-21.0.0/binary_view", "cpp-21.0.0/run_end_encoded"}
"""The contents that pyarrow refuses to read in big-endian order, as "not implemented"."""


@pytest.mark.parametrize("name", NAMES)
def test_all_forms_of_a_content_are_equal(arrow_testing: Path, name: str) -> None:
    first, *others = [read(arrow_testing, name, form) for form in READERS]
    for other in others:
        assert first.equals(other, check_metadata=name not in RENAMED)
        assert [batch.num_rows for batch in first.batches] == [batch.num_rows for batch in other.batches]


@pytest.mark.parametrize("name", NAMES)
def test_full_validation(arrow_testing: Path, name: str) -> None:
    for form in READERS:
        table = read(arrow_testing, name, form)
        table.validate()
        if name in BREAK_RULES:
            with pytest.raises(sa.InvalidData, match=BREAK_RULES[name]):
                table.validate(full=True)
        else:
            table.validate(full=True)
        if name in BEYOND_PYTHON:
            with pytest.raises(sa.InvalidData, match=BEYOND_PYTHON[name]):
                table.to_pylist()
        else:
            assert len(table.to_pylist()) == table.num_rows


@pytest.mark.parametrize("name", NAMES)
def test_what_we_write_reads_as_the_original(arrow_testing: Path, name: str) -> None:
    ours = read(arrow_testing, name, "arrow_file")
    peers = pa.ipc.open_file(path(arrow_testing, name, "arrow_file")).read_all()
    for form, (is_file, options) in forms.FORMS.items():
        data = forms.write(form, ours.batches, ours.schema)
        assert forms.read(form, data).equals(ours, check_metadata=True), form
        if options.endianness == "big" and name in NOT_SWAPPED_BY_PYARROW:
            continue
        opened = pa.ipc.open_file(data) if is_file else pa.ipc.open_stream(data)
        theirs = opened.read_all()
        theirs.validate()
        assert theirs.equals(peers, check_metadata=True), form
