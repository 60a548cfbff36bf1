# SPDX-License-Identifier: Apache-2.0
"""Every byte of an Arrow object explained: its meaning, the chapter that defines it, and its decoded value.

:func:`overview` finds the kind, the schema and the offsets of the batches, fast for objects of any size. :func:`walk`
yields a :class:`Region` for every byte, :func:`summary` one for every message, and :func:`findings` the deviations from
the specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.xray.model import Finding, Region

if TYPE_CHECKING:
    from shmarrow.xray.model import BufferRole
    from shmarrow.xray.outline import summary
    from shmarrow.xray.overviews import Overview, overview
    from shmarrow.xray.sentences import KINDS
    from shmarrow.xray.walker import findings, walk

__all__ = ["KINDS", "BufferRole", "Finding", "Overview", "Region", "findings", "overview", "summary", "walk"]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".outline": "summary",
            ".model": "BufferRole",
            ".overviews": "Overview overview",
            ".sentences": "KINDS",
            ".walker": "findings walk",
        },
    )
