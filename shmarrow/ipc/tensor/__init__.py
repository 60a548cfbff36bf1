# SPDX-License-Identifier: Apache-2.0
"""Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format"), and bundles of them."""

BUNDLE_KEY = b"shmarrow:bundle"
"""The metadata key that marks a file as a bundle."""
