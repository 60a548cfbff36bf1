"""The doors of tensors: importing this gives them their ``from_...`` and ``to_...`` methods."""

from shmarrow.interchange import jax as jax
from shmarrow.interchange import pyarrow_tensors as pyarrow_tensors
from shmarrow.interchange import pydata_sparse as pydata_sparse
from shmarrow.interchange import scipy as scipy
from shmarrow.interchange import torch as torch
