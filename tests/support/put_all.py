"""Several objects of a store at once, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import shmarrow as sa


def put_all(store: sa.Store, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> list[str]:
    """Put objects by their names, one by one."""
    return [store.put(name, value) for name, value in dict(items).items()]


def get_all(store: sa.Store, names: Iterable[str], **options: Any) -> dict[str, Any]:
    """Get objects by their names, one by one."""
    return {name: store.get(name, **options) for name in names}
