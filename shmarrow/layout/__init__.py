# SPDX-License-Identifier: Apache-2.0
"""Physical memory layouts (columnar format, "Physical Memory Layout"): one module and array class per layout.

``listing`` is the buffer listing as a table, ``array`` the base class, ``hooks`` the methods that each layout
implements. ``construct`` creates arrays from their parts, ``values`` from values; ``codes`` finds equal
slots.
"""

from __future__ import annotations

from shmarrow.layout.array import Array, concat_arrays, nulls
from shmarrow.layout.construct import make_array
from shmarrow.layout.listing import LISTING, BufferSpec, Layout

__all__ = ["LISTING", "Array", "BufferSpec", "Layout", "concat_arrays", "make_array", "nulls"]
