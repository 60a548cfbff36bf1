# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of types, fields and schemas ("Schema message")."""
