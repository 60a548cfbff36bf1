"""Tensors and sparse tensors: arrays of any number of dimensions, each in one message ("Tensor", "SparseTensor").

One file a form, in which all that the form knows of itself stands: its buffers, building, checking and conversions.
"""

from shmarrow.tensor.dense import Tensor

__all__ = ["Tensor"]
