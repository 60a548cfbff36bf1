"""Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format"), and bundles of them."""
