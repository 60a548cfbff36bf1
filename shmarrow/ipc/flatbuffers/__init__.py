# SPDX-License-Identifier: Apache-2.0
"""FlatBuffers: declarations of Arrow's tables, a validating reader, a writer."""
