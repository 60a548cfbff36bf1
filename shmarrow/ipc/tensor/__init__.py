# SPDX-License-Identifier: Apache-2.0
"""Tensor and SparseTensor messages ("Tensor (Multi-dimensional Array) Message Format"), and bundles of them."""
