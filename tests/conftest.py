# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import settings

# No test is timed: on a busy machine the default of 200 ms per example fails what is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
