"""What ``make docs`` writes into pages of the guide: parts between two comments, ``NAME`` and ``end of NAME``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def filled(page: Path, **parts: str) -> str:
    """The text of a page with other parts, by the names in their marks."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{part.strip()}\n\n{end}{rest.partition(end)[2]}"
    return text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], mark: str = "---") -> str:
    """A table in Markdown; ``mark`` is that below each heading but the first."""
    lines = [heads, ["---", *[mark] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
