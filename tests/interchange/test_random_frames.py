"""Random data frames: equal after a store or a file, or refused when they are put."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", minversion="3.0")

import random_frames  # noqa: E402

COUNT = 160


def check_same(found: Any, frame: Any) -> None:
    """Raise AssertionError unless two frames are equal, with all that ``assert_frame_equal`` does not ask."""
    pd.testing.assert_frame_equal(found, frame)
    for mine, theirs in ((found.index, frame.index), (found.columns, frame.columns)):
        pd.testing.assert_index_equal(mine, theirs)
        assert getattr(mine, "freq", None) == getattr(theirs, "freq", None)
        assert isinstance(mine, pd.MultiIndex) == isinstance(theirs, pd.MultiIndex)
        assert list(map(type, mine.names)) == list(map(type, theirs.names))
        assert list(map(type, mine)) == list(map(type, theirs))
    assert repr(found.attrs) == repr(frame.attrs)
    for i in range(frame.shape[1]):
        if str(frame.dtypes.iloc[i]) == "object":
            for mine, theirs in zip(found.iloc[:, i], frame.iloc[:, i], strict=True):
                assert type(mine) is type(theirs) or (type(mine), type(theirs)) == (float, int)


def test_a_random_frame_comes_back_or_is_refused(shm_name: str, tmp_path: Any) -> None:
    refused = 0
    with warnings.catch_warnings(), sa.Store(shm_name) as store:
        warnings.simplefilter("ignore")
        for seed in range(COUNT):
            frame = random_frames.frame(seed)
            try:
                store.put("frame", frame, overwrite=True)
            except sa.ShmarrowError:
                refused += 1
                continue
            found = store.get("frame").to_pandas()
            check_same(found, frame)
            if seed % 8 == 0 and len(frame):
                table = sa.table(frame)
                with sa.ipc.new_file(tmp_path / f"{seed}.arrow", table.schema) as writer:
                    writer.write(table)
                check_same(sa.ipc.open_file(tmp_path / f"{seed}.arrow").read_all().to_pandas(), frame)
                check_same(sa.Table.from_batches([sa.record_batch(frame)] * 2).slice(0, len(frame)).to_pandas(), frame)
        store.destroy()
    assert 0 < refused < COUNT / 5
