"""Control files and objects that nobody should trust: data or our errors, never a crash, a hang or much memory."""

from __future__ import annotations

import os
from pathlib import Path

import hostile
import hostile_store
import lab
import pytest

import shmarrow as sa
from shmarrow.store import protocol as p


def test_changed_control_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``python tests/support/fuzz.py --store`` does for longer."""
    if os.geteuid() != 0:
        pytest.skip("takes root to open stores as another user")
    with lab.shared_folder(0o755) as folder:
        monkeypatch.setenv(hostile_store.FOLDER, str(folder))
        counts, findings = hostile.run(hostile_store.mutation, range(10_000), 5, hostile_store.exercise)
    assert not findings, "\n".join(f"{each.name}: {each.what}" for each in findings[:3])
    assert counts["opened"] > 5, counts
    assert counts["refused"] > 0, counts


def test_what_is_wrong_with_a_control_file_is_said(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with sa.Store(where) as store:
        store.put("a", values := bytes(5000))
        store.put_many({f"b{number}": number for number in range(20)})
        path = Path(store.info("a").path or "")
    control = where / "control"
    good = control.read_bytes()

    def said(data: bytes) -> str:
        control.write_bytes(data)
        with pytest.raises(sa.InvalidData) as error:
            sa.Store(where)
        assert str(where) in str(error.value)
        return str(error.value)

    assert "expected the magic b'shmarrow', found b'SHMARROW'" in said(b"SHMARROW" + good[8:])
    assert "expected version 2, found 3" in said(good[:8] + b"\3" + good[9:])
    assert "its header is invalid" in said(good[:12] + b"\0\1\0\0" + good[16:])
    assert "has 0 bytes" in said(b"")
    assert "has 4095 bytes" in said(good[:4095])
    for size in (4096, 86016, p.SLOTS, p.SLOTS + 500):
        assert f"bytes, found {size}" in said(good[:size])
    control.write_bytes(good[:144] + (1 << 30).to_bytes(8, "little") + good[152:])
    os.truncate(control, p.SLOTS + (512 << 30))
    with pytest.raises(sa.InvalidData, match=r"has holes: \d+ of 549755904000 bytes are allocated"):
        sa.Store(where)
    control.write_bytes(good)
    with sa.Store(where) as store:
        assert store.get("a") == values
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(sa.InvalidData, match=r"'a' .* is damaged: expected \d+ bytes, found \d+; delete it"):
            store.get("a")
        store.delete("a")
        store.put("a", 1)
