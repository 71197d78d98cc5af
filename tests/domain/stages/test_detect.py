"""Which findings are final, and when."""

from __future__ import annotations

import pytest

from tests.domain.stages.closings import watch
from tests.store.builders import batch
from trmon.domain import rulebook
from trmon.domain.identity import BatchKey
from trmon.domain.mind import RunMind
from trmon.domain.stages.detect import detect
from trmon.domain.stages.draft import Draft
from trmon.domain.stages.fold import fold

RULES = rulebook.parse(
    """
- {name: gauge, severity: warn, summary: s, when: {signal: x, above: 10}}
- {name: every, severity: warn, summary: s, reads: every_update, when: {signal: x, above: 10}}
"""
)

Row = tuple[int, int | None, float]


def findings(rows: list[Row]) -> list[list[tuple[str, int, int | None, str]]]:
    """Return what each row makes final: (rule, step, update, truth)."""
    mind, found = RunMind(), []
    for ordinal, (step, update, x) in enumerate(rows, start=1):
        row = batch(BatchKey(1, step, update), run_id=1, ordinal=ordinal, signals={"x": x})
        detected = detect(fold(Draft(watch=watch(rules=RULES), mind=mind, row=row)))
        mind = detected.folded.mind
        found.append([(f.rule, f.key.step, f.key.update, f.raised.truth.value) for _, f in detected.findings])
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [(0, None, 20.0), (1, None, 0.0)],
            [[("gauge", 0, None, "true")], [("every", 0, None, "true"), ("gauge", 1, None, "false")]],
            id="a rollout row is final at once; every update is known when the next step begins",
        ),
        pytest.param(
            [(0, 0, 20.0), (0, 1, 0.0), (1, 0, 0.0)],
            [[], [], [("gauge", 0, 1, "false"), ("every", 0, 0, "true")]],
            id="without one the last update is the gauge; one true update is enough for every",
        ),
        pytest.param(
            [(0, None, 0.0), (0, 0, 20.0), (1, None, 0.0)],
            [[("gauge", 0, None, "false")], [], [("every", 0, 0, "true"), ("gauge", 1, None, "false")]],
            id="updates after a rollout row are no gauge",
        ),
        pytest.param(
            [(5, None, 0.0), (3, None, 20.0)],
            [[("gauge", 5, None, "false")], []],
            id="a row that comes after its place says nothing",
        ),
    ],
)
def test_findings_are_final_when_their_row_is_known(
    rows: list[Row], expected: list[list[tuple[str, int, int | None, str]]]
) -> None:
    assert findings(rows) == expected
