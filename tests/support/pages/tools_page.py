"""The table of what each tool gets in place of types that it does not accept, in ``docs/interchange.md``.

``make docs`` writes it, and a test checks that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator

from environment import ROOT
from marked import filled, table

from shmarrow.types.consumers import CONSUMERS, Rule

PAGE = ROOT / "docs" / "interchange.md"


def _types(rule: Rule) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in rule.kinds.split())
    return f"{kinds} {rule.which}".rstrip()


def _loss(rule: Rule) -> str:
    if not rule.loses:
        return ""
    return f"with `lossy` only: {rule.loses}" if rule.lossy else f"refused where there are {rule.loses}"


def parts() -> Iterator[str]:
    """The rules of all tools, those for the same types side by side, and what is not said of types."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, consumer in CONSUMERS.items():
        for rule in consumer.rules:
            if not rule.shown and "unless named" in rule.which:
                continue  # the row before it says so
            rows.setdefault((_types(rule), rule.shown or "*refused*", _loss(rule)), []).append(name)
    kinds = list(dict.fromkeys(types.partition(" ")[0] for types, _, _ in rows))
    ordered = sorted(rows.items(), key=lambda row: kinds.index(row[0][0].partition(" ")[0]))
    yield table(
        ("types", "become", "what may be lost", "for"), [(*cells, ", ".join(names)) for cells, names in ordered]
    )
    yield ""
    for name, consumer in CONSUMERS.items():
        notes = []
        if consumer.extensions:
            place = "" if consumer.nested_extensions else ", in columns of their own"
            notes.append(f"keeps {', '.join(f'`{each}`' for each in sorted(consumer.extensions))}{place}")
        if consumer.unique_names:
            notes.append("columns, and fields of a struct, need different names")
        if consumer.some_column:
            notes.append("needs at least one column")
        if consumer.distinct:
            notes.append("dictionaries with nulls or repeated values get new ones without")
        if notes:
            yield f"- `{name}`: {'; '.join(notes)}."
    yield ""
    yield "All other extension types become their storage, and `arrow.bool8`, where it is not kept, `bool`."


def page() -> str:
    """The whole page, with the table as it should be."""
    return filled(PAGE, tables="\n".join(parts()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
