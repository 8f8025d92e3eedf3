# SPDX-License-Identifier: Apache-2.0
"""``make demo``: the stage (cluster, release, Prometheus, ledger) and the telling of the stories."""
