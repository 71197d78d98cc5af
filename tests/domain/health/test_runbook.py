"""How to read a run's worst answers."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.memory_log import MemoryLog
from trmon.domain.findings.configuration import IMPORTED
from trmon.domain.health.runbook import answers_of


def test_a_run_without_recorder_is_told_how_to_turn_it_on_and_a_log_is_not() -> None:
    run = MemoryLog().stored_run
    told = answers_of(run, cause="reward_collapse", sends_tokens=True)
    assert (told.command, told.are_recorded) == ("export TRMON_RECORD_DIR=recordings", False)
    log = replace(run, config={IMPORTED: {"format": "jsonl"}})
    assert answers_of(log, cause="reward_collapse", sends_tokens=False) is None
