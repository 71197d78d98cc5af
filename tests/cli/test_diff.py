"""`trmon diff`: runs side by side in the width of the terminal."""

from __future__ import annotations

import pytest

from tests.terminal.test_fleet import a_run
from trmon.cli.diff import comparison_lines
from trmon.domain.health.judgement import VerdictKind
from trmon.terminal.text import PIPE_WIDTH
from trmon_client.api import ApiNumber, ComparedRun, ComparisonInfo, PolicyInfo
from trmon_client.api.comparison import ConfigDifferenceInfo

LONG = "a-very-long-name-of-a-run-that-nobody-can-read-in-eighty-columns-of-a-terminal-at-all"


def comparison(n: int) -> ComparisonInfo:
    policy = PolicyInfo(
        name="trm_auto",
        hash="abcdef0123456789",
        policy={},
        shadows=(),
        author="default",
        reason="",
        created_at=0.0,
        from_step=0,
        pinned=False,
        evidence={},
    )
    unknown = ApiNumber("nan")
    run = ComparedRun(
        fleet=a_run(VerdictKind.WATCH, name=LONG),
        policy=policy,
        created_at=0.0,
        step=(1, 2),
        elapsed_seconds=(1.0, 2.0),
        signals={"reward_mean": (ApiNumber(0.123456789), unknown), "loss": (unknown, unknown)},
        partings=(),
        sentence="They part at step 20: KL first.",
    )
    entry = ConfigDifferenceInfo(name=f"actor.{LONG}", values=(LONG,) * n, given=(*(True,) * (n - 1), False))
    return ComparisonInfo(by="step", proposed=n == 2, same_policy=False, config=(entry,), runs=(run,) * n)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("width", [80, 40, 20])
def test_columns_are_cut_to_the_terminal_and_never_vanish(n: int, width: int) -> None:
    lines = list(comparison_lines(comparison(n), width=width))
    assert any("B is the sound run" in line for line in lines) == (n == 2)
    table = lines[lines.index("") + 1 :]
    assert all(len(line) <= max(width, 24 + n * 8) for line in table)
    head = table[0].split()
    assert head == list("ABCDEFGH"[:n])
    reward = next(line for line in table if line.startswith("reward_mean"))
    assert reward.split()[1] == "0.1235" if width == 80 else "0.1" in reward


def test_in_a_pipe_nothing_is_cut_and_columns_are_as_wide_as_what_they_hold() -> None:
    lines = list(comparison_lines(comparison(2), width=PIPE_WIDTH))
    assert not any("…" in line for line in lines)
    assert lines[-1] == f'actor.{LONG}  "{LONG}"  -'
    assert max(map(len, lines)) < 200
