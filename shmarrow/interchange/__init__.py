# SPDX-License-Identifier: Apache-2.0
"""Conversions to and from other libraries: one module for each, imported on first use.

The ``from_...`` and ``to_...`` methods of arrays, columns, types and tensors are ordinary methods of their classes:
they import a function from here, which implements them, and call it.
"""
