"""Random data frames: equal after a store or a file, or refused when they are put."""

from __future__ import annotations

import decimal
import numbers
import warnings
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", minversion="3.0")

import random_frames  # noqa: E402

COUNT = 160


def check_same(found: Any, frame: Any) -> None:
    """Raise AssertionError unless two frames are equal, down to the classes of objects and the kinds of missing values.

    ``assert_frame_equal`` does not ask for these, and takes a frame with NaN beside nulls for other than itself.
    """
    check_index(found.index, frame.index)
    check_index(found.columns, frame.columns)
    assert repr(found.attrs) == repr(frame.attrs)
    for i in range(frame.shape[1]):
        check_values(found.iloc[:, i], frame.iloc[:, i])


def check_index(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert getattr(found, "freq", None) == getattr(expected, "freq", None)
    assert list(map(form, found.names)) == list(map(form, expected.names))
    for level in range(expected.nlevels):
        check_values(found.get_level_values(level), expected.get_level_values(level))


def check_values(found: Any, expected: Any) -> None:
    assert str(found.dtype) == str(expected.dtype)
    if isinstance(expected.dtype, pd.CategoricalDtype):
        assert found.dtype.ordered == expected.dtype.ordered
        check_index(found.dtype.categories, expected.dtype.categories)
    else:
        assert found.dtype == expected.dtype
    assert list(found.isna()) == list(expected.isna())
    assert list(map(form, found)) == list(map(form, expected))


def form(value: Any) -> Any:
    """A value and its parts with their classes, other than of numbers and text, such that NaN equals NaN alone."""
    if isinstance(value, dict):
        return dict, [(form(key), form(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), list(map(form, value))
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, list(map(form, value.tolist()))
    if isinstance(value, (numbers.Real, decimal.Decimal, str)) and value == value:
        return isinstance(value, str), value
    return type(value), repr(value)


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
