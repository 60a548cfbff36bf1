"""Record what each input gives on each way in, to compare before and after a change of the structure.

``python tools/digest.py OUT.json`` reads Arrow's golden files and fuzz corpus (``ARROW_TEST_DATA``, as in the tests),
every case of ``tests/support/cases`` in every form, and some mutations of them, with ``open``, ``get``, ``scan``,
``handle`` and ``xray``. For each it notes a digest of the values, or the class and ``where`` of the error.
``python tools/digest.py BEFORE.json AFTER.json`` prints what differs of the inputs that both have; exit status 1 then.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(os.environ.get("ARROW_TEST_DATA") or ROOT.parent / "shared" / "arrow-testing")
MUTATIONS = 2000
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT)]


def attempt(use: Callable[[], Any]) -> str:
    """A short digest of what a call returns, or the class and ``where`` of its error."""
    try:
        return hashlib.sha256(repr(use()).encode()).hexdigest()[:16]
    except Exception as error:
        where = [[str(part) for part in level] for level in getattr(error, "where", ())]
        return f"{type(error).__name__} {json.dumps(where)}".replace(str(GOLDEN), "GOLDEN")


def values(value: Any) -> Any:
    """Return the schema and the exact values of a batch, table, reader, array, tensor or bundle."""
    from cases.compare import exact

    if isinstance(value, dict):
        return {name: values(item) for name, item in value.items()}
    if hasattr(value, "read_all"):
        return values(value.read_all())
    if hasattr(value, "columns"):
        return repr(value.schema), value.num_rows, [attempt(lambda c=c: exact(c.to_pylist())) for c in value.columns]
    if hasattr(value, "to_pylist"):
        return repr(value.type), exact(value.to_pylist())
    return repr(value), exact(value.to_numpy().tolist())


def by_path(path: str) -> dict[str, str]:
    """Every way in to a file or stream at a path."""
    import shmarrow as sa
    from shmarrow import xray

    opened = sa.ipc.open_stream if path.endswith(("stream", "fuzz-stream")) else sa.ipc.open_file
    return {
        "ipc": attempt(lambda: values(opened(path))),
        "open": attempt(lambda: values(sa.open(path))),
        "scan": attempt(lambda: values(sa.scan(path).to_table())),
        "handle": attempt(lambda: values(sa.handle(sa.open(path).read_all()).open())),
        "xray": attempt(lambda: (list(map(str, xray.walk(path))), [f[:3] for f in xray.findings(path)])),
    }


def inputs(folder: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Return every input by name, and what it gives."""
    import hostile
    from cases.forms import FORMS, write
    from cases.table import cases

    import shmarrow as sa

    store = sa.Store(os.path.join(folder, "store"))
    for path in sorted(GOLDEN.rglob("*")):
        kind = path.parent.name if path.parent.name in ("file", "stream") else path.suffix[1:]
        if path.is_file() and kind in ("file", "stream", "arrow_file"):
            link = os.path.join(folder, f"input.{kind}")
            os.symlink(path, link)
            yield str(path.relative_to(GOLDEN)), by_path(link)
            os.remove(link)
    for case in cases():
        column = case.array()
        attempt(lambda column=column: store.delete("array"))
        ways = {
            "array": attempt(lambda column=column: values(column)),
            "put": attempt(lambda column=column: store.put("array", column).partition("@")[0]),
            "get": attempt(lambda: values(store.get("array"))),
            "handle": attempt(lambda: values(sa.handle(store.get("array")).open())),
        }
        yield f"case/{case.name}", ways
        batch = sa.record_batch([column], names=["c"])
        for form in FORMS if case.writable else ():
            data = write(form, [batch, batch.slice(len(batch) // 3)], batch.schema)
            ways = {"bytes": attempt(lambda data=data: values(sa.open(data)))}
            if form in ("file-plain", "stream-zstd"):
                path = os.path.join(folder, f"input.{'file' if FORMS[form][0] else 'stream'}")
                Path(path).write_bytes(data)
                ways = by_path(path)
            yield f"case/{case.name}/{form}", {"written": hashlib.sha256(data).hexdigest()[:16], **ways}
    for number in range(MUTATIONS):
        data, is_file = hostile.mutation(number)
        opened = sa.ipc.open_file if is_file else sa.ipc.open_stream
        ways = {
            "ipc": attempt(lambda opened=opened, data=data: values(opened(data))),
            "open": attempt(lambda data=data: values(sa.open(data))),
        }
        yield f"mutation/{hashlib.sha256(data).hexdigest()[:16]}", ways
    store.destroy()


def main(paths: list[str]) -> int:
    """Record into one path, or compare two."""
    if len(paths) == 1:
        with tempfile.TemporaryDirectory() as folder:
            result = {
                name: {way: text.replace(folder, "TMP") for way, text in ways.items()} for name, ways in inputs(folder)
            }
        Path(paths[0]).write_text(json.dumps(result, indent=0, sort_keys=True))
        print(f"{len(result)} inputs")
        return 0
    before, after = (json.loads(Path(path).read_text()) for path in paths)
    differ = 0
    for name, way in itertools.chain.from_iterable(((n, w) for w in before[n]) for n in before if n in after):
        if way in after[name] and before[name][way] != after[name][way]:
            differ += 1
            print(f"{name} {way}: {before[name][way]} -> {after[name][way]}")
    print(f"{len(before.keys() & after.keys())} of {len(before)} inputs compared, {differ} differences")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
