"""The queries of *Fleet* over all runs; each returns one series per run."""

from __future__ import annotations

from dashboards.source.bands import ACT, HEALTHY, WATCH
from dashboards.source.panels import Meanings
from dashboards.source.promql import active_mask_rate, per_run, runs

STATE = per_run(runs("trmon_run_state"), "state")
PAGES = per_run(runs("trmon_alert_active", severity="page"))
WARNINGS = per_run(runs("trmon_alert_active", severity="warn"))
RUNNING = per_run(runs("trmon_run_state", state="running"))
GONE = per_run(runs("trmon_run_state", state="stalled|crashed"), "state")
SILENCE = f"time() - {per_run(runs('trmon_last_report_timestamp_seconds'))}"
MASK_RATE = per_run(active_mask_rate(runs("trmon_mask_rate"), runs("trmon_threshold")))

NEED = f"clamp_max(2 * {PAGES} + {WARNINGS}, 2)"
NEEDS: Meanings = {0: ("no alert", HEALTHY), 1: ("watch", WATCH), 2: ("act", ACT)}
"""The urgency of a run, by the most severe alert that fires."""
