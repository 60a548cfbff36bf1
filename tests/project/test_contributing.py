"""The pages for contributors name no file that is not there."""

from __future__ import annotations

import re

import pytest
from environment import ROOT


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/contributing.md", "docs/format.md"])
def test_paths_in_the_text_lead_somewhere(page: str) -> None:
    """A path from the root, from the package or from the tests; a name alone is that of some file of the package."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", text))
    assert paths
    places = (ROOT / "shmarrow", ROOT, ROOT / "tests")
    names = {path.name for path in (ROOT / "shmarrow").rglob("*.py")}
    assert sorted(path for path in paths - names if not any((place / path).exists() for place in places)) == []
