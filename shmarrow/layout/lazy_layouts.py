"""The layouts that most data do without; they are imported together when the first of them is met."""

from shmarrow.layout.binary_view import BinaryViewArray
from shmarrow.layout.list_view import ListViewArray
from shmarrow.layout.null import NullArray
from shmarrow.layout.run_end_encoded import RunEndEncodedArray
from shmarrow.layout.union import UnionArray

__all__ = ["CLASSES", "BinaryViewArray", "ListViewArray", "NullArray", "RunEndEncodedArray", "UnionArray"]

CLASSES = (BinaryViewArray, ListViewArray, NullArray, RunEndEncodedArray, UnionArray)
