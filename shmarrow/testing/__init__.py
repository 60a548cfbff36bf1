"""Tools to test other implementations of Arrow IPC, or of the store, against this one.

* :func:`cases`: a table of types and values, with their memory layout where the specification works it out;
* :mod:`~shmarrow.testing.strategies`: Hypothesis strategies for types, arrays, record batches and tables;
* :func:`check_reader`: every case as file and stream, read by another implementation, and compared;
* :class:`StoreContract`: pytest tests for an object that behaves like a :class:`shmarrow.Store`;
* :func:`check_store`: the invariants of a store's control file, for other implementations of its protocol.

``pip install 'shmarrow[testing]'`` installs Hypothesis and pytest, which strategies and contracts need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.testing import strategies
    from shmarrow.testing.compare import exact
    from shmarrow.testing.definition import Case, Physical
    from shmarrow.testing.reader import Outcome, check_reader, read_cases
    from shmarrow.testing.store import StoreContract
    from shmarrow.testing.store_files import check_store
    from shmarrow.testing.table import case, cases

__all__ = [
    "Case",
    "Outcome",
    "Physical",
    "StoreContract",
    "case",
    "cases",
    "check_reader",
    "check_store",
    "exact",
    "read_cases",
    "strategies",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".compare": "exact",
            ".definition": "Case Physical",
            ".reader": "Outcome check_reader read_cases",
            ".store": "StoreContract",
            ".store_files": "check_store",
            ".strategies": "",
            ".table": "case cases",
        },
    )
