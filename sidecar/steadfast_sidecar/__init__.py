# SPDX-License-Identifier: Apache-2.0
"""The metrics sidecar: turns the scheduler's hand-off file and the outbox into Prometheus counters."""
