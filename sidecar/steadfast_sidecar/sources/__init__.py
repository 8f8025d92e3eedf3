# SPDX-License-Identifier: Apache-2.0
"""Where the numbers come from: the scheduler's hand-off file and the workers' outbox."""

from __future__ import annotations

from steadfast_sidecar.sources.airflow_config import no_url, outbox_bypass
from steadfast_sidecar.sources.base import Reading, Reason, Source, SourceError
from steadfast_sidecar.sources.database import engine_of, shown
from steadfast_sidecar.sources.handoff import HandoffSource
from steadfast_sidecar.sources.outbox import OutboxSource
from steadfast_sidecar.sources.schema import ensure_tables

__all__ = [
    "HandoffSource",
    "OutboxSource",
    "Reading",
    "Reason",
    "Source",
    "SourceError",
    "engine_of",
    "ensure_tables",
    "no_url",
    "outbox_bypass",
    "shown",
]
