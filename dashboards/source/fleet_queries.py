"""The queries of *Fleet* over all runs; each returns one series per run."""

from __future__ import annotations

from dashboards.source.bands import ACT, HEALTHY, WATCH
from dashboards.source.panels import Meanings
from dashboards.source.promql import active_mask_rate, per_run, runs

STATE = per_run(runs("trmon_run_state"), "state")
NOW = per_run(runs("trmon_run_verdict", need="now"))
SOON = per_run(runs("trmon_run_verdict", need="soon"))
RUNNING = per_run(runs("trmon_run_state", state="running"))
GONE = per_run(runs("trmon_run_state", state="stalled|crashed"), "state")
SILENCE = f"time() - {per_run(runs('trmon_last_report_timestamp_seconds'))}"
MASK_RATE = per_run(active_mask_rate(runs("trmon_mask_rate"), runs("trmon_threshold")))

NEED = f"2 * {NOW} or {SOON} or 0 * {per_run(runs('trmon_run_verdict'))}"
NEEDS: Meanings = {0: ("nothing to do", HEALTHY), 1: ("soon", WATCH), 2: ("now", ACT)}
"""How soon to investigate a run, by its verdict; of replicas that differ, the more urgent one."""
