"""Every byte of an Arrow object explained: what it is, where the specification defines it, and what it says.

:func:`overview` tells kind, schema and where the batches are, fast whatever the size. :func:`walk` yields a
:class:`Region` for every byte, and :func:`findings` what deviates from the specification.
"""

from __future__ import annotations

from shmarrow.xray.leaves import Leaf, Node
from shmarrow.xray.model import KINDS, Finding, Region
from shmarrow.xray.overview import Overview, overview
from shmarrow.xray.summary import summary
from shmarrow.xray.walk import findings, walk

__all__ = ["KINDS", "Finding", "Leaf", "Node", "Overview", "Region", "findings", "overview", "summary", "walk"]
