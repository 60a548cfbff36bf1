"""Every door in sandboxes that deny links, unnamed files, locks of open files, ``fallocate`` or ``/proc``.

What a fallback can keep whole works; the rest is refused by one of our errors, which says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environment import ROOT

pytestmark = pytest.mark.processes

DOORS = """
import os, sys, threading
import numpy as np
import shmarrow as sa
sys.stdout.reconfigure(line_buffering=True)
here = sys.argv[1]
batch = sa.record_batch({"x": np.arange(50_000), "s": ["a"] * 50_000})

def file(name, **options):
    with sa.ipc.new_file(name, batch.schema, **options) as writer:
        writer.write(batch)
    assert sa.ipc.open_file(name).get_batch(0).equals(batch)

def new_file():
    file(f"{here}/new.arrow", overwrite=False)
    try:
        file(f"{here}/new.arrow", overwrite=False)
    except sa.ObjectExists:
        return
    raise AssertionError("replaced")

def replaced_file():
    for _ in range(2):
        file(f"{here}/replaced.arrow")
    os.symlink("replaced.arrow", f"{here}/link.arrow")
    file(f"{here}/link.arrow")
    assert os.path.islink(f"{here}/link.arrow")

def stream():
    with sa.ipc.new_stream(f"{here}/s.arrows", batch.schema) as writer:
        writer.write(batch)
    assert sa.ipc.open_stream(f"{here}/s.arrows").read_all().num_rows == 50_000

def tensors():
    sa.save_tensors({"w": np.arange(9.0)}, f"{here}/w.tensors")
    assert sa.load_tensors(f"{here}/w.tensors")["w"].to_numpy().sum() == 36

def in_place():
    with sa.segment.create(f"{here}/place") as writer:
        array = writer.map(5_000_000)
        array[:] = 7
    assert (sa.segment.attach(f"{here}/place").data == 7).all() and (array == 7).all()

def shared_memory():
    name = f"shm:sa-sandbox-{os.getpid()}"
    file(name)
    sa.segment.delete(name)

def store():
    with sa.Store(f"{here}/store") as store:
        store.put("batch", batch)
        store.put("batch", batch, overwrite=True)
        store.put("small", np.arange(3))
        assert store.get("batch").num_rows == 50_000 and store.names() == ["batch", "small"]
        store.delete("batch")

def ring():
    with sa.Ring(f"{here}/ring", like=batch, slots=4) as writer:
        reader = sa.Ring(f"{here}/ring")
        writer.put(batch)
        assert next(reader).num_rows == 50_000
        reader.close()

for door in (new_file, replaced_file, stream, tensors, in_place, shared_memory, store, ring):
    try:
        door()
        print(door.__name__, "works")
    except sa.ShmarrowError as error:
        print(door.__name__, "is refused:", error)
print(sorted(name for name in os.listdir(here) if name.startswith(".")))
"""

EVERY = ("new_file", "replaced_file", "stream", "tensors", "in_place", "shared_memory", "store", "ring")
WITHOUT_REPLACING = ("new_file", "in_place", "shared_memory", "ring")
SANDBOXES: dict[str, dict[str, str]] = {
    "": {},
    "links": {"store": "stores need hard links"},
    "unnamed": {"store": "no unnamed files"},
    "ofd": {"ring": "no locks of open files"},
    "fallocate": {},
    "proc": {"store": "there is no /proc", "ring": "no /proc"},
    "renameat2": {},
    "links unnamed": {"store": "no unnamed files"},
    "links fallocate": {"store": "stores need hard links"},
    "links proc": {"store": "there is no /proc", "ring": "no /proc"},
    "links renameat2": {"store": "stores need hard links"}
    | dict.fromkeys(WITHOUT_REPLACING, "neither hard links nor renameat2"),
    "links unnamed ofd fallocate proc": {"store": "there is no /proc", "ring": "no /proc"},
}
"""What a sandbox denies, and what is then refused, with what the error says."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the sandbox")
    target = tmp_path_factory.mktemp("sandbox") / "sandbox.so"
    source = ROOT / "tests" / "support" / "sandbox.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True)
    return target


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.replace(" ", "-") or "none")
def test_doors(sandbox: str, shim: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DOORS, str(tmp_path)]
    if "proc" in sandbox:
        command = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", *command]
    environment = {**os.environ, "LD_PRELOAD": str(shim), "SANDBOX": sandbox, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "proc" in sandbox and any(word in ran.stderr for word in ("unshare:", "mount:")):
        pytest.skip("needs the privilege to mount")
    assert ran.returncode == 0, ran.stderr
    *lines, left = ran.stdout.splitlines()
    answers = dict(line.split(" ", 1) for line in lines)
    assert tuple(answers) == EVERY
    for door, answer in answers.items():
        refusal = SANDBOXES[sandbox].get(door)
        assert answer == "works" if refusal is None else refusal in answer, (door, answer)
    assert left == "[]"
