# SPDX-License-Identifier: Apache-2.0
"""``python -m steadfast_sidecar``."""

from __future__ import annotations

import sys

from steadfast_sidecar.cli import main

if __name__ == "__main__":
    sys.exit(main())
