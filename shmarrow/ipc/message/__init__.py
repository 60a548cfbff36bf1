# SPDX-License-Identifier: Apache-2.0
"""Encapsulated messages: framing and metadata ("Encapsulated message format")."""
