"""Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format"), and bundles of them."""

BUNDLE_KEY = b"shmarrow:bundle"
"""The key in the metadata of a file that says that it is a bundle."""
