# SPDX-License-Identifier: Apache-2.0
"""Many files as one table.

``sources`` finds, recognizes and opens files and objects, and makes columns of the names of directories;
``filters`` chooses rows, and what may have them; ``fitting`` brings batches to one schema; ``one_table`` is the whole.
"""

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.scans.one_table import Scan, Split, scan
    from shmarrow.scans.sources import open

__all__ = ["Scan", "Split", "open", "scan"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {".one_table": "Scan Split scan", ".sources": "open"})
