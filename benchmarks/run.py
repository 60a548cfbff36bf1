"""Runs the benchmarks: every row beside every installed peer, as tables and JSON.

    python benchmarks/run.py                          # all suites but spark: some 15 minutes
    python benchmarks/run.py --quick                  # smaller data, fewer rounds: under 3 minutes
    python benchmarks/run.py --parts opening store.wake --rows "10,000 columns"
    python benchmarks/run.py --parts opening --base ../other-checkout

Each suite runs in a process of its own, so that none is affected by the threads and memory of the one before. A full
run writes ``benchmarks/results.json``; a part of it only prints, unless ``--json`` names
a file. With ``--update`` the parts that ran replace those of the same name in that file. The status is 1 if a suite
failed, or a requirement is missed by more than the spread of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from harness import against, machine  # noqa: E402
from harness.bench import Options, benchmark  # noqa: E402
from harness.figures import missed, summary  # noqa: E402

SUITES = {
    "cold": "Fresh processes",
    "opening": "Opening files",
    "writing": "Writing",
    "tensors": "Tensors",
    "interchange": "Other libraries",
    "processes": "Between processes",
    "scan": "Many files as one table",
    "values": "Checking and converting values",
    "building": "Arrays from Python values",
    "store": "The store: small objects, many names",
    "objects": "The store: large objects, waiting",
    "rings": "Rings",
    "alternatives": "What one could take instead of a store",
    "reuse": "Tables that share memory",
    "scale": "At scale",
    "gpu": "To a GPU",
    "spark": "Spark",
}
"""Suites by the names of their modules, in the order in which they run."""

ASKED_FOR = ("spark",)
"""Suites that take so long that they run only when they are named, or with ``--spark``."""

SECONDS = {"spark": 7200}
"""The longest that a suite may take; 1,200 where nothing is said."""


def end_with_parent(parent: int) -> None:
    """Have this process receive SIGTERM when its parent ends, however that happens. Does nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            sys.exit(143)


def one_suite(name: str, record: str, options: str) -> None:
    """Run one suite in this process."""
    try:
        module = importlib.import_module(f"suites.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("shmarrow", "suites", "harness"):
            raise
        Path(record).write_text(json.dumps({"skipped": name, "reason": f"{error.name} is not installed"}) + "\n")
        return
    with benchmark(name, Options(**json.loads(options)), Path(record)) as bench:
        bench.run(module.PARTS)


def child(name: str, options: Options, checkout: Path = ROOT) -> list[dict[str, Any]]:
    """Run one suite in a process of its own, with the package of a checkout, and give what it recorded."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(checkout)
    with tempfile.NamedTemporaryFile("r", prefix="shmarrow-bench-") as record:
        words = ["--child", str(os.getpid()), name, record.name, json.dumps(asdict(options))]
        command = [sys.executable, str(HERE / "run.py"), *words]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL if options.only_ours else None)
        try:
            status: int | str = process.wait(SECONDS.get(name, 1200))
        except subprocess.TimeoutExpired:
            status = "none: it took too long"
        finally:  # also when this process is interrupted: the suite removes its files and ends what it started
            if process.poll() is None:
                process.terminate()
                process.wait()
        found = [json.loads(line) for line in record]
    if status:
        found.append({"failed": name, "error": f"the process ended with status {status}"})
    return found


def measured(name: str, options: Options) -> dict[str, Any]:
    """The results of a suite, or of parts of it."""
    start, load = perf_counter(), os.getloadavg()[0]
    found = child(name, options)
    took = perf_counter() - start
    print(f"\n{name}: {took:.0f} s", flush=True)
    parts = {each["took"].partition(".")[2]: round(each["seconds"], 1) for each in found if "took" in each}
    return {
        "groups": {name: {"title": SUITES[name], "load": round(load, 2), "seconds": round(took, 1), "parts": parts}},
        "rows": [each for each in found if "ours" in each],
        "skipped": [{"part": each["skipped"], "reason": each["reason"]} for each in found if "skipped" in each],
        "failed": [{"part": each["failed"], "error": each["error"]} for each in found if "failed" in each],
    }


def updated(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Results in which the parts that ran have replaced those of the same name."""
    ran = {f"{name}.{part}" for name, group in new["groups"].items() for part in group["parts"]}
    groups = dict(old["groups"])
    for name, group in new["groups"].items():
        parts = {**groups.get(name, group)["parts"], **group["parts"]}
        groups[name] = {**group, "parts": parts, "seconds": round(sum(parts.values()), 1)}

    def kept(key: str) -> list[Any]:
        return [each for each in old[key] if each["part"] not in {*ran, *new["groups"]}] + new[key]

    order = list(SUITES)
    rows = [row for row in old["rows"] if f"{row['group']}.{row['part']}" not in ran] + new["rows"]
    return {
        **old,
        "seconds": sum(each["seconds"] for each in groups.values()),
        "groups": {name: groups[name] for name in order if name in groups},
        "rows": sorted(rows, key=lambda row: order.index(row["group"])),
        "skipped": kept("skipped"),
        "failed": kept("failed"),
    }


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Replace a file, so that it is never there in part: a line for each row."""

    def text(value: Any) -> str:
        each = (json.dumps(one, ensure_ascii=False) for one in (value if isinstance(value, list) else [value]))
        return "[\n" + ",\n".join(each) + "\n]" if isinstance(value, list) else next(each)

    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text("{\n" + ",\n".join(f'"{key}": {text(value)}' for key, value in results.items()) + "\n}\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="smaller data, fewer rounds")
    add("--parts", nargs="+", metavar="SUITE[.PART]", default=[], help="only these; --list shows them")
    add("--rows", metavar="REGEX", default="", help="only rows whose `suite.part: name` contains this")
    add("--rounds", type=int, metavar="N", help="of each row; 5, with --quick 2")
    add("--spark", action="store_true", help="run the suite spark, too, which takes half an hour and 16 GiB")
    add("--json", type=Path, metavar="OUT", help="write the results; a full run writes benchmarks/results.json")
    add("--update", action="store_true", help="keep the other parts of the file that --json names")
    add("--base", type=Path, metavar="FOLDER", help="compare this checkout with another one, without the peers")
    add("--list", action="store_true", help="print the suites and their parts")
    return parser.parse_args(words)


def chosen(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """The suites to run, each with its parts; no part means all of them."""
    if not arguments.parts:
        return {name: () for name in SUITES if name not in ASKED_FOR or arguments.spark}
    found: dict[str, tuple[str, ...]] = {}
    for each in arguments.parts:
        suite, _, part = each.partition(".")
        if suite not in SUITES:
            sys.exit(f"benchmarks: no suite is named {suite!r}; there are {', '.join(SUITES)}")
        found[suite] = (*found.get(suite, ()), part) if part else ()
    return {name: found[name] for name in SUITES if name in found}


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if words[:1] == ["--child"]:
        end_with_parent(int(words[1]))
        one_suite(*words[2:])
        return 0
    arguments = parsed(words)
    if arguments.list:
        for name, title in SUITES.items():
            print(f"{name:12} {title}: {', '.join(importlib.import_module(f'suites.{name}').PARTS)}")
        return 0
    suites = chosen(arguments)
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    options = Options(arguments.quick, arguments.rows, (), rounds, arguments.base is not None)
    if arguments.base is not None:
        return against.compare(suites, options, {"current": ROOT, "base": arguments.base.resolve()}, child)
    whole = not (arguments.parts or arguments.rows or arguments.quick)
    file = arguments.json or (HERE / "results.json" if whole else None)
    results: dict[str, Any] = {"groups": {}, "rows": [], "skipped": [], "failed": []}
    if file is not None and arguments.update and file.exists():
        results = json.loads(file.read_text())
    results |= {"machine": machine.facts(), "quick": arguments.quick, "rounds": rounds}
    for name, parts in suites.items():
        results = updated(results, measured(name, replace(options, parts=parts)))
        if file is not None:
            write(file, results)
    print(*summary(results), sep="\n")
    certain = [row for row in missed(results["rows"]) if not row["doubtful"]]
    return 1 if results["failed"] or certain else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
