"""The map for contributors names every file, and no file that is not there."""

from __future__ import annotations

import re

import filemap
from environment import ROOT

TEXT = filemap.PAGE.read_text(encoding="utf-8")


def test_the_table_of_files_is_that_of_the_files() -> None:
    assert filemap.page() == TEXT, "run make docs"


def test_every_file_says_what_it_is() -> None:
    assert [row for row in filemap.table().splitlines() if row.endswith("|  |")] == []


def test_paths_in_the_text_lead_somewhere() -> None:
    text = TEXT.partition(filemap.BEGIN)[0]
    paths = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", text))
    assert len(paths) > 20
    places = (ROOT / "shmarrow", ROOT, ROOT / "tests")
    assert sorted(path for path in paths if not any((place / path).exists() for place in places)) == []
