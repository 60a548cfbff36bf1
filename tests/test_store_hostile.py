"""Control files and objects that nobody should trust: data or one of our errors, never a crash, a hang or much memory."""

from __future__ import annotations

import os
from pathlib import Path

import hostile
import hostile_store
import lab
import pytest

import shmarrow as sa


def test_changed_control_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``python tests/fuzz.py --store`` does for longer."""
    if os.geteuid() != 0:
        pytest.skip("takes root to open stores as another user")
    with lab.shared_folder(0o755) as folder:
        monkeypatch.setenv(hostile_store.FOLDER, str(folder))
        counts, findings = hostile.run(hostile_store.mutation, range(10_000), 6, hostile_store.exercise)
    assert not findings, "\n".join(f"{each.name}: {each.what}" for each in findings[:3])
    assert counts["opened"] > 50, counts
    assert counts["refused"] > 5, counts
