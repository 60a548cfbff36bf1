"""Runs the benchmarks: every row beside every installed peer, as tables, JSON and a page with plots.

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
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from harness import against, leftovers, machine  # noqa: E402
from harness.bench import Options, benchmark  # noqa: E402
from harness.tables import missed, summary  # noqa: E402

SUITES = {
    "cold": "Fresh processes",
    "opening": "Opening files",
    "writing": "Writing, compression",
    "ranges": "Reading from an object store",
    "tensors": "Tensors",
    "interchange": "Other libraries",
    "processes": "Between processes",
    "scan": "Many files as one table",
    "values": "Comparing, checking and converting values",
    "building": "Arrays from Python, numpy and pandas",
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


def one_suite(name: str, options: Options, record: Path) -> None:
    """Run one suite in this process."""
    try:
        module = importlib.import_module(f"suites.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("shmarrow", "suites", "harness"):
            raise
        record.write_text(json.dumps({"skipped": name, "reason": f"{error.name} is not installed"}) + "\n")
        return
    with benchmark(name, options, record) as bench:
        bench.run(module.PARTS)


def child(name: str, options: Options, checkout: Path = ROOT) -> list[dict[str, Any]]:
    """Run one suite in a process of its own, with the package of a checkout, and give what it recorded."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(checkout)
    with tempfile.NamedTemporaryFile("r", prefix="shmarrow-bench-") as record:
        words = [sys.executable, str(HERE / "run.py"), "--child", name, record.name, json.dumps(asdict(options))]
        words.append(str(os.getpid()))
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL if options.only_ours else None)
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


def collected(
    suites: Mapping[str, tuple[str, ...]], options: Options, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run suites, or parts of them, one after the other, and put together what they recorded.

    After each suite ``keep`` is called with the results so far.
    """
    results: dict[str, Any] = {
        "machine": machine.facts(),
        "quick": options.quick,
        "rounds": options.rounds,
        "seconds": 0.0,
        "groups": {},
        "rows": [],
        "skipped": [],
        "failed": [],
    }
    for name, chosen_parts in suites.items():
        start, load, before = perf_counter(), os.getloadavg()[0], _processor_time()
        found = child(name, replace(options, parts=chosen_parts))
        took = perf_counter() - start
        results["seconds"] += took
        parts = {each["took"].partition(".")[2]: round(each["seconds"], 1) for each in found if "took" in each}
        results["groups"][name] = {
            "title": SUITES[name],
            "load": round(load, 2),
            "seconds": round(took, 1),
            "processor_seconds": round(_processor_time() - before, 1),
            "parts": parts,
        }
        for each in found:
            if "skipped" in each:
                results["skipped"].append({"part": each["skipped"], "reason": each["reason"]})
            elif "failed" in each:
                results["failed"].append({"part": each["failed"], "error": each["error"]})
            elif "took" not in each:
                results["rows"].append(each)
        used = results["groups"][name]["processor_seconds"]
        print(f"\n{name}: {took:.0f} s, of which {used:.0f} s on a processor", flush=True)
        keep(results)
    return results


def _processor_time() -> float:
    """Seconds that all children took on processors: if it is far less than the time that passed, others had them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(path: Path, text: str) -> None:
    """Replace a file, so that it is never there in part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def updated(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
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
        **new,
        "seconds": sum(each["seconds"] for each in groups.values()),
        "groups": {name: groups[name] for name in order if name in groups},
        "rows": sorted(rows, key=lambda row: order.index(row["group"])),
        "skipped": kept("skipped"),
        "failed": kept("failed"),
    }


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
        leftovers.end_with_parent(int(words[4]))
        options = json.loads(words[3])
        one_suite(words[1], Options(**{**options, "parts": tuple(options["parts"])}), Path(words[2]))
        return 0
    arguments = parsed(words)
    if arguments.list:
        for name, title in SUITES.items():
            print(f"{name:12} {title}: {', '.join(importlib.import_module(f'suites.{name}').PARTS)}")
        return 0
    suites = chosen(arguments)
    leftovers.sweep()
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    options = Options(arguments.quick, arguments.rows, (), rounds, arguments.base is not None)
    if arguments.base is not None:
        return against.compare(suites, options, {"current": ROOT, "base": arguments.base.resolve()}, child)
    whole = not (arguments.parts or arguments.rows or arguments.quick)
    file = arguments.json or (HERE / "results.json" if whole else None)
    old = json.loads(file.read_text()) if file is not None and arguments.update and file.exists() else None

    def merged(results: dict[str, Any]) -> dict[str, Any]:
        return results if old is None else updated(old, results)

    def keep(results: dict[str, Any]) -> None:
        if file is not None:
            write(file, json.dumps(merged(results), indent=1, ensure_ascii=False) + "\n")

    results = merged(collected(suites, options, keep))
    print(summary(results))
    if file is not None:
        print(f"Written: {os.path.relpath(file)}")
    certain = [row for row in missed(results["rows"]) if not row["doubtful"]]
    return 1 if results["failed"] or certain else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
