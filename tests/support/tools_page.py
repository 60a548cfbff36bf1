"""The tables of ``docs/tools.md``: what each tool gets in place of types that it does not accept.

``python tests/support/tools_page.py`` writes them, and a test checks that they are up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shmarrow.types.consumers import CONSUMERS, Consumer, Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def _types(rule: Rule) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in rule.kinds.split())
    return f"{kinds} {rule.which}".rstrip()


def _loss(rule: Rule) -> str:
    if not rule.loses:
        return ""
    return f"with `lossy`: {rule.loses}" if rule.lossy else f"refused where there are {rule.loses}"


def table(name: str, consumer: Consumer) -> Iterator[str]:
    """The rules of a consumer."""
    yield from ("", f"## {consumer.title}: `for_consumer({name!r})`", "")
    yield from ("| types | become | what may be lost |", "| --- | --- | --- |")
    for rule in consumer.rules:
        yield f"| {_types(rule)} | {rule.shown or 'refused'} | {_loss(rule)} |"
    yield ""
    if consumer.extensions:
        place = "" if consumer.nested_extensions else ", in columns of their own"
        yield f"Extension types that it knows: {', '.join(f'`{each}`' for each in sorted(consumer.extensions))}{place}."
    if consumer.unique_names:
        yield "Columns, and fields of a struct, need different names."
    if consumer.some_column:
        yield f"{consumer.title} needs at least one column."
    if consumer.distinct:
        yield "Dictionaries with nulls or repeated values get new ones without."


def page() -> str:
    """The whole page, with the tables as they should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    lines = [line for name, consumer in CONSUMERS.items() for line in table(name, consumer)]
    text = "\n".join(lines).rstrip("\n") + "\n"
    return before + BEGIN + text + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
