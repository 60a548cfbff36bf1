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
    from shmarrow.testing import strategies as strategies
    from shmarrow.testing.compare import exact as exact
    from shmarrow.testing.definition import Case as Case
    from shmarrow.testing.definition import Physical as Physical
    from shmarrow.testing.reader import Outcome as Outcome
    from shmarrow.testing.reader import check_reader as check_reader
    from shmarrow.testing.reader import read_cases as read_cases
    from shmarrow.testing.store import StoreContract as StoreContract
    from shmarrow.testing.store_files import check_store as check_store
    from shmarrow.testing.table import case as case
    from shmarrow.testing.table import cases as cases


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
