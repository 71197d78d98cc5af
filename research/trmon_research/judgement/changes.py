"""Verdicts that changed: those of the two judges of before, which are kept as words, beside those of this one."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trmon.domain.findings.judge import JudgeState
from trmon.domain.findings.verdict import judge_run, number
from trmon_research.collapse.markdown import table
from trmon_research.judgement.folded import CATALOGUE

BEFORE = Path(__file__).parents[2] / "data" / "verdicts_before.json"
"""The verdict on each run of each set by the rules and the diagnosis at commit c6228833: a finding, or words."""
NOW_CALLED: Mapping[str, frozenset[str]] = {
    "staleness": frozenset(("stale_rollouts",)),
    "entropy": frozenset(("entropy_explosion", "entropy_collapse")),
    "length": frozenset(("length_collapse", "length_hacking")),
    "training healthy, agreement not measured": frozenset(("training healthy; agreement not measured",)),
    "no drift found": frozenset(("healthy", "no drift found; training not judged")),
}
"""What verdicts of before are called now, where the words differ."""
MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word of a judgement, or the finding that leads it, and what decides it."""

    word: str
    reason: str

    @classmethod
    def of(cls, state: JudgeState) -> Verdict:
        """Return the verdict after the newest row, of which there is one."""
        found = judge_run(state, CATALOGUE)
        assert found is not None
        if found.lead is not None:
            return cls(found.lead.finding, f"`{found.lead.clause}`")
        return cls(found.word.value, ", ".join(f"{out.signal} {number(out.value)}" for out in found.outside))


def changes(runs: str, now: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the lines of a table of the verdicts that changed, with what decides now. Args: runs: the set's name."""
    before: Mapping[str, str] = json.loads(BEFORE.read_text())[runs]
    reasons: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    known = {name: verdict for name, verdict in now.items() if name in before}
    for name, verdict in known.items():
        if verdict.word not in (before[name], *NOW_CALLED.get(before[name], ())):
            reasons[before[name], verdict.word][verdict.reason] += 1
    changed = sorted(reasons.items(), key=lambda item: -item[1].total())
    yield f"{sum(counts.total() for _, counts in changed)} of {len(known)} verdicts changed:"
    yield ""
    rows = [[was, word, str(counts.total()), _reason_words(counts)] for (was, word), counts in changed]
    yield from table(["before", "now", "runs", "what decides now"], rows)


def _reason_words(counts: Counter[str]) -> str:
    words = [f"{reason} {n}" for reason, n in counts.most_common(MOST_REASONS) if reason]
    return ", ".join((*words, "...") if len(counts) > MOST_REASONS else words)
