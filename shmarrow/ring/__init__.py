# SPDX-License-Identifier: Apache-2.0
"""Rings: frames of one shape, passed from one writer to many readers in shared memory.

``protocol`` has the layout of the file, ``file`` its words, locks and semaphores, ``frames`` writes and reads what is
in a slot, and ``ring`` has the steps of writer and readers.
"""

from shmarrow.ring.frames import Slot
from shmarrow.ring.ring import ReaderInfo, Ring, RingInfo, ring_info

__all__ = ["ReaderInfo", "Ring", "RingInfo", "Slot", "ring_info"]
