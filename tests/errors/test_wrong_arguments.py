"""Wrong arguments are refused by our errors, which name what was found and what to pass."""

from __future__ import annotations

from typing import Any

import pytest
from forms import file_of, stream_of
from remote import Remote

import shmarrow as sa
from shmarrow.ipc import StreamDecoder

BATCH = sa.record_batch({"s": ["a", "b"], "t": [1, 2], "state": [3, 4]})


FILE, STREAM = file_of(BATCH, BATCH), stream_of(BATCH, BATCH)


@pytest.mark.parametrize("limits", [None, {"depth": 3}, sa.Limits])
def test_limits_of_another_type(limits: Any) -> None:
    for call in (
        lambda: sa.ipc.open_file(FILE, limits=limits),
        lambda: sa.ipc.open_stream(STREAM, limits=limits),
        lambda: StreamDecoder(limits),
        lambda: sa.ipc.read_tensor(STREAM, limits=limits),
        lambda: sa.ipc.read_tensors(STREAM, limits=limits),
        lambda: sa.load_tensors(FILE, limits=limits),
    ):
        with pytest.raises(sa.InvalidType, match=r"limits must be a shmarrow\.Limits, found"):
            call()
    with pytest.raises(sa.InvalidArgument, match="depth must be an int"):
        sa.Limits(depth=True)


def test_a_batch_that_outlives_the_reader_of_ranges() -> None:
    with sa.ipc.open_file(Remote(FILE)) as reader:
        batch = reader[0]
        assert batch.column("t").to_pylist() == [1, 2]
    assert batch.column("t").to_pylist() == [1, 2]
    with pytest.raises(sa.Closed, match=r"the reader of .* is closed, and this column was not read before; .*read_all"):
        batch.column("state")


def test_a_mapped_stream_has_a_length() -> None:
    reader: Any = sa.ipc.open_stream(STREAM)
    assert (len(reader), reader.num_rows) == (2, 4)
    assert reader[1].equals(BATCH)
    assert reader[-1].equals(BATCH)
    assert [batch.num_rows for batch in reader] == [2, 2]


def test_missing_arguments_are_those_of_the_method() -> None:
    for call, match in (
        (lambda: sa.array([1]).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.table({"a": [1]}).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.Table.from_pandas(), r"from_pandas\(\) missing"),
    ):
        with pytest.raises(TypeError, match=match):
            call()
