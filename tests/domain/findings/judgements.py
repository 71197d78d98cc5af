"""Builds judgements: the word on a run, and its findings with their onsets."""

from __future__ import annotations

from typing import Any

from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Evidence, Place
from trmon.domain.findings.verdict import Course, Found, Judgement, OutOfRange, Word

ROSE = Course(signal="reward_mean", first=0.2, last=0.6, trend="rose")
KL_OUTSIDE = OutOfRange(signal="mismatch_kl_k3", value=0.21, range="< 0.005")


def found(finding: str, *, since: int = 22, attempt: int = 1, **fields: Any) -> Found:
    """Return a finding as it is told, from its step `since` on."""
    clause = builtin_catalogue().by_id[finding].clauses[0]
    known: dict[str, Any] = {
        "clause": clause.id,
        "title": builtin_catalogue().by_id[finding].title,
        "meaning": clause.meaning,
        "severity": clause.severity,
        "remedy": finding,
        "chart": clause.chart,
        "since": Place(attempt, since),
        "found": Place(attempt, since + 8),
        "from_start": since == 0,
        "last_good": Place(attempt, since - 1) if since > 5 else None,
        "evidence": (Evidence(measure="kl_k3", signal="mismatch_kl_k3", value=0.2, side=">", limit=0.05, now=0.2),),
    }
    return Found(finding=finding, **{**known, **fields})


def judged(*findings: Found, word: Word | None = None, rows: int = 40, step: int = 40, **fields: Any) -> Judgement:
    """Return a judgement: the findings that stand, or else a word."""
    known: dict[str, Any] = {"reward": ROSE, "measures_agreement": True, "measures_training": True}
    if findings:
        known |= {"since": findings[0].since, "last_good": findings[0].last_good}
    return Judgement(
        word=word or (Word.FINDING if findings else Word.HEALTHY),
        place=Place(1, step),
        rows=rows,
        findings=findings,
        **{**known, **fields},
    )
