# SPDX-License-Identifier: Apache-2.0
"""The streaming format ("IPC Streaming Format"): sans-I/O decoder, readers, writer."""
