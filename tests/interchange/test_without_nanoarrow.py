"""Exchange with other libraries where nanoarrow is not installed: pyarrow's compiled callbacks take its place."""

from __future__ import annotations

import pytest
from processes import python

pytestmark = pytest.mark.processes
pytest.importorskip("pyarrow")

BLOCKED = """
import sys
sys.modules["nanoarrow"] = None
import gc, io, weakref
import numpy as np
import pyarrow as pa
import shmarrow as sa
from cases.table import cases
from forms import file_of
"""

EVERY_CASE = """
for case in cases(writable=True):
    array = case.array()
    if "month_interval" in str(case.type) or "day_time" in str(case.type):
        continue
    batch = sa.record_batch([array], names=["x"])
    expected = pa.ipc.open_file(file_of(batch)).read_all()
    for theirs in (pa.record_batch(batch), pa.table(sa.table([batch, batch])).slice(len(array))):
        theirs.validate(full=True)
        assert theirs.schema.equals(expected.schema, check_metadata=True), case.name
        assert pa.table(theirs).equals(expected) or str(theirs.to_pydict()) == str(expected.to_pydict()), case.name
    assert sa.record_batch(pa.record_batch(batch)).equals(batch), case.name
    chunked = pa.chunked_array(sa.chunked_array([array, array.slice(1)]))
    assert [len(chunk) for chunk in chunked.chunks] == [len(array), max(len(array) - 1, 0)]
    assert sa.chunked_array(chunked).type == array.type
"""

MEMORY = """
class Owner:
    def __init__(self, values):
        self.values, self.__array_interface__ = values, values.__array_interface__
owner = Owner(np.arange(1000))
gone = weakref.ref(owner)
array = sa.ListArray.from_arrays(np.arange(0, 1001, 10, dtype="i4"), sa.array(np.asarray(owner)))
del owner
theirs = pa.array(array)
child = theirs.values
assert child.buffers()[1].address == array.values.to_numpy().ctypes.data
del array, theirs
gc.collect()
assert gone() and child[999].as_py() == 999
again = sa.array(child)
assert np.shares_memory(again.to_numpy(), gone().values)
del child
gc.collect()
assert gone() and again.to_pylist()[-1] == 999
capsules = again.__arrow_c_array__(), sa.table({"x": again}).__arrow_c_stream__()
del again
assert gone()
del capsules
gc.collect()
assert gone() is None
try:
    sa.array([None], sa.month_interval()).__arrow_c_array__()
except sa.Unsupported as error:
    print(error)
"""


def test_every_case_goes_both_ways() -> None:
    python(BLOCKED + EVERY_CASE)


def test_nothing_is_copied_and_memory_lives_as_long_as_it_is_used() -> None:
    assert "has no type" in python(BLOCKED + MEMORY)
