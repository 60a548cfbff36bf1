"""The check that a walk covers every byte of an object once, which all suites of ``shmarrow.xray`` share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shmarrow import xray
from shmarrow.xray import Finding, Region

Walked = tuple[list[Region], list[Finding]]


def covered(target: Any, **options: Any) -> Walked:
    """All regions and findings, after a check that the regions cover each byte once, but for overlaps."""
    found: list[Finding] = []
    regions = list(xray.walk(target, report=found.append, **options))
    starts = [each.start for each in regions]
    assert starts == sorted(starts)
    assert {each.kind for each in regions} <= set(xray.KINDS)
    at = 0
    for each in regions:
        assert each.start < each.end
        if each.kind != "overlap":
            assert each.start == at, (each, at)
            at = each.end
    size = xray.overview(target).size
    assert at == size
    assert all(0 <= each.start <= each.end <= size for each in found), found
    return regions, found


def changed(data: bytes, at: int, value: bytes) -> bytes:
    """Bytes with some of them replaced."""
    return data[:at] + value + data[at + len(value) :]


def kinds(regions: list[Region]) -> Counter[str]:
    """Bytes by kind of region."""
    count: Counter[str] = Counter()
    for each in regions:
        count[each.kind] += each.end - each.start
    return count


def find(regions: list[Region], kind: str, text: str = "") -> list[Region]:
    """The regions of a kind whose description contains a text."""
    return [each for each in regions if each.kind == kind and text in each.what]


def said(findings: list[Finding]) -> list[tuple[str, str]]:
    """Severity and message of findings."""
    return [(each.severity, each.message) for each in findings]
