"""The columns of a file are checked by each reader anew, whatever other readers found."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")

TEXT = "a text of many bytes"
TYPES = [sa.string(), sa.string_view(), sa.dictionary(sa.int8(), sa.string()), sa.list_(sa.large_string())]


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("form", ["file", "stream"])
def test_each_reader_checks_a_file_anew(shm_name: str, type: Any, form: str) -> None:
    path = "/dev/shm/" + shm_name.removeprefix("shm:")
    value = [TEXT] if type.layout == "list" else TEXT
    batch = sa.record_batch({"n": sa.array([1, None]), "s": sa.array([value, value], type)})
    with getattr(sa.ipc, f"new_{form}")(path, batch.schema) as writer:
        writer.write(batch)
    with open(path, "r+b") as file:
        pages = mmap.mmap(file.fileno(), 0)
    pages[pages.rfind(TEXT.encode())] = ord("b")
    open_it = getattr(sa.ipc, f"open_{form}")
    with open_it(path) as reader:
        assert pa.table(reader.read_all()).num_rows == 2
    pages[pages.rfind(TEXT[1:].encode())] = 0xFF  # through a mapping, which leaves the times of the file as they are
    for _ in range(2):
        with open_it(path) as reader, pytest.raises(sa.InvalidData, match="UTF-8"):
            pa.table(reader.read_all())
