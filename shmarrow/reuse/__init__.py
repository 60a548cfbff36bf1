"""Objects of a store that share buffers with others: what ``Store.put(..., reuse=True)`` writes, and how it is read.

A buffer that is a view of another object of the store is not written again. The new object's file is an Arrow file (or
stream) of the other buffers; the files of the objects that it shares with get second names, hard links, and become its
*parts*. So the kernel keeps the pages of a file as long as any object needs them, whatever becomes of the others.

Invariants:

* references lead to files, never to other references: what a value was read from is a file, which is linked again. So
  the number of steps to a buffer does not grow with the number of objects in between;
* each range of a part is checked against the size of its file before a view is made of it;
* a part is opened and mapped when a buffer in it is first used, so that opening an object costs the same for 100 parts
  as for one. As long as an object is attached, its parts keep their names, even if it was removed.
"""

from shmarrow.reuse.shared import SharedFiles
from shmarrow.reuse.sources import Sources

__all__ = ["SharedFiles", "Sources"]
