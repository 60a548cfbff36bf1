"""What the suites of Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmarrow as sa


@pytest.fixture
def store(shm_name: str) -> Iterator[sa.Store]:
    """A store of this test's own, in which nothing may be left."""
    with sa.Store(shm_name) as made:
        yield made
        assert made.names() == []
        made.destroy()
