# SPDX-License-Identifier: Apache-2.0
"""``python -m shmarrow``: the same as the command ``shmarrow``."""

import sys

from shmarrow.cli import main

if __name__ == "__main__":
    sys.exit(main())
