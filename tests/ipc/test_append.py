"""Appending to files: whom it must not overwrite, what it refuses to copy, and what it counts."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
import time
from pathlib import Path

import pytest
from wire import blocks_of

import shmarrow as sa
from shmarrow import segment
from shmarrow.ipc.file.appender import RecordBatchFileAppender


def _file(where: Path, *values: int) -> None:
    batches = [sa.record_batch({"x": [value]}) for value in values]
    with sa.ipc.new_file(where, batches[0].schema) as writer:
        for batch in batches:
            writer.write(batch)


def _values(where: Path) -> list[object]:
    with sa.ipc.open_file(where) as reader:
        return reader.read_all().to_pydict()["x"]


def test_a_replacement_is_never_overwritten(tmp_path: Path) -> None:
    """Also where the file system gives the inode of the removed file to the one that replaces it, as ext4 does."""
    path = tmp_path / "a"
    for replaced in [1, 2, 3, 4, 5] * 5:
        _file(path, 1)
        appender = sa.ipc.append_file(path)
        appender.write(sa.record_batch({"x": [2]}))
        for value in range(10, 10 + replaced):
            _file(path, value)
        with pytest.raises(sa.StorageError, match="by another writer") as found:
            appender.close()
        assert found.value.errno == errno.EBUSY
        assert _values(path) == [9 + replaced]
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_changed_in_place_is_not_replaced(tmp_path: Path) -> None:
    """The same inode with another time of change, or another size, is another file."""
    path = tmp_path / "a"
    _file(path, 1)
    with segment.attach(path) as attached:
        device, inode, size, changed = attached.identity
    for replacing in ((device, inode, size, changed - 1), (device, inode, size + 1, changed)):
        writer = segment.create(path, overwrite=True, mode=None, replacing=replacing)
        writer.write([b"other"])
        with pytest.raises(sa.StorageError, match="replaced or changed") as found:
            writer.close()
        assert found.value.errno == errno.EBUSY
        assert _values(path) == [1]
    with segment.create(path, overwrite=True, mode=None, replacing=(device, inode, size, changed)) as writer:
        writer.write([b"other"])
    assert path.read_bytes() == b"other"


def test_the_old_file_stays_attached_until_the_appender_is_closed(tmp_path: Path) -> None:
    """So its inode cannot be given to another file before the two are compared."""
    path = tmp_path / "a"
    _file(path, 1)
    for end in (RecordBatchFileAppender.abort, RecordBatchFileAppender.close):
        appender = sa.ipc.append_file(path)
        assert str(path) in Path("/proc/self/maps").read_text()
        end(appender)
        assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_directory_that_somebody_has_locked_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever may read a directory can lock it: that must not keep writers waiting for ever."""
    path = tmp_path / "a"
    _file(path, 1)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    appender = sa.ipc.append_file(path)
    started = time.monotonic()
    with pytest.raises(sa.StorageError, match="lslocks") as found:
        appender.close()
    assert 1 < time.monotonic() - started < 10
    assert found.value.errno == errno.EBUSY
    assert (_values(path), os.listdir(tmp_path)) == ([1], ["a"])
    # One that is held for moments only is waited for.
    appender = sa.ipc.append_file(path)
    appender.write(sa.record_batch({"x": [2]}))
    release = threading.Timer(0.2, os.close, [directory])
    release.start()
    appender.close()
    release.join()
    assert _values(path) == [1, 2]


@pytest.mark.parametrize("slot", ["recordBatches", "dictionaries"])
@pytest.mark.parametrize("damage", ["offset", "beyond", "far", "metaDataLength", "bodyLength", "long"])
def test_nothing_is_added_to_a_file_whose_blocks_lead_astray(tmp_path: Path, slot: str, damage: str) -> None:
    """In the new file they would lead to bytes of what is added, and make batches that were refused readable."""
    path = tmp_path / "a"
    words = sa.array(["a", "b", "a"], sa.dictionary(sa.int32(), sa.string()))
    batch = sa.record_batch({"x": words})
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
        writer.write(batch)
    data = bytearray(path.read_bytes())
    blocks = blocks_of(bytes(data))[slot]
    number, (offset, metadata, body) = len(blocks) - 1, blocks[-1]
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    bad = {
        "offset": (0, metadata, body),
        "beyond": (footer - metadata - body + 8, metadata, body),
        "far": (2**63 - 8, metadata, body),
        "metaDataLength": (offset, 0, body),
        "bodyLength": (offset, metadata, -8),
        "long": (offset, metadata, 2**63 - 8),
    }[damage]
    old, new = (struct.pack("<qi4xq", *each) for each in ((offset, metadata, body), bad))
    assert data.count(old, footer) == 1
    data[footer:] = data[footer:].replace(old, new)
    path.write_bytes(data)
    with pytest.raises(sa.InvalidData, match=f"{slot}: block {number} needs"):
        sa.ipc.append_file(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (bytes(data), ["a"])


def test_a_footer_that_counts_rows_wrongly_is_not_believed(tmp_path: Path) -> None:
    """Its claims about the old batches must not come back in a footer that the appender wrote."""
    path = tmp_path / "a"
    _file(path, 1, 2)
    data = path.read_bytes()
    assert data.count(b"2*1") == 1
    path.write_bytes(data.replace(b"2*1", b"2*9"))
    with sa.ipc.open_file(path) as reader:
        assert reader.num_rows == 18  # a hint, which is believed here and nowhere else
    with sa.ipc.append_file(path) as writer:
        writer.write(sa.record_batch({"x": [3, 4]}))
    with sa.ipc.open_file(path) as reader:
        assert (reader.num_rows, reader.read_all().num_rows) == (4, 4)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's file")
def test_a_file_placed_by_somebody_else_gives_nothing_to_its_replacement(tmp_path: Path) -> None:
    """In a directory that all may write, its owner would get what is written; adding to it leaves it with its owner."""
    path = tmp_path / "a"
    before = os.umask(0o077)
    try:
        for bits, planted in ((0o1777, True), (0o755, False), (0o1755, False)):
            tmp_path.chmod(bits)
            _file(path, 1)
            os.chown(path, 65534, 65534)
            path.chmod(0o666)
            with sa.ipc.append_file(path) as writer:
                writer.write(sa.record_batch({"x": [2]}))
            found = path.stat()
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65534, 0o666)
            _file(path, 3)
            found = path.stat()
            expected = (0, 0, 0o600) if planted else (65534, 65534, 0o666)
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == expected
            assert _values(path) == [3]
            path.unlink()
    finally:
        os.umask(before)
