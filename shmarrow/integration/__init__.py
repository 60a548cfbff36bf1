# SPDX-License-Identifier: Apache-2.0
"""Arrow integration tests: JSON format and commands."""
