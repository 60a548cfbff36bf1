# SPDX-License-Identifier: Apache-2.0
"""The file format ("IPC File Format"): footer, reader, writer, appender."""
