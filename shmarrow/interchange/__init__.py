"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables, types and tensors their ``from_...`` and ``to_...`` methods.
"""

from shmarrow.interchange import jax as jax
from shmarrow.interchange import pyarrow as pyarrow
from shmarrow.interchange import pydata_sparse as pydata_sparse
from shmarrow.interchange import scipy as scipy
from shmarrow.interchange import torch as torch
