# SPDX-License-Identifier: Apache-2.0
"""``python3 -m tests.cluster up|down|status|kubeconfig|path|tool``."""

import sys

from tests.cluster.kind.cli import main

sys.exit(main())
