"""Diagnoses as a service answers them, for tests that draw one without a run."""

from __future__ import annotations

import json
from typing import Any

from trmon.domain.findings.judge import Evidence
from trmon.domain.findings.verdict import PREDICTION
from trmon_client.api.answers import convert_answer, encode_answer
from trmon_client.api.diagnosis import DiagnosisInfo, FindingInfo

MISMATCH = {
    "finding": "engine_mismatch",
    "clause": "kl_k3",
    "title": "engine mismatch",
    "meaning": "They differ.",
    "severity": "warn",
    "headline": "engine mismatch since step 62 (last good step 61)",
    "chart": "total_kl_k3",
    "since_step": 62,
    "since_attempt": 1,
    "found_step": 66,
    "last_good_step": 61,
    "last_good_attempt": 1,
    "evidence": (),
}
NOTHING = {"step": 99, "attempt": 1, "rows": 100, "sentence": "healthy", "findings": (), "over": (), "outside": ()}


def evidence(measure: str, signal: str, *, value: float, limit: float, now: float | None = None) -> dict[str, Any]:
    """Return a comparison that holds; `now` is the signal's newest value, by default `value`."""
    words = f"{measure} is {value:g} (limit {limit:g})"
    newest = value if now is None else now
    return {
        "measure": measure,
        "signal": signal,
        "words": words,
        "value": value,
        "side": ">",
        "limit": limit,
        "now": newest,
        "is_on_scale": Evidence(
            measure=measure, signal=signal, value=value, side=">", limit=limit, now=newest
        ).is_on_scale,
    }


def finding(**given: Any) -> dict[str, Any]:
    """Return a finding that stands since step 62, with other fields as given."""
    return _answer(MISMATCH | given, FindingInfo)


def diagnosis(*findings: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Return a diagnosis; the first of the findings leads it, unless `word` is given."""
    lead = findings[0] if findings else {"since_step": None, "last_good_step": None}
    known = {"word": "finding" if findings else "healthy", "remedy": None, "findings": findings}
    since = {"since_step": lead["since_step"], "last_good_step": lead["last_good_step"]}
    fields = NOTHING | known | since | given
    if findings and fields["word"] == "finding" and lead["finding"] != PREDICTION:
        good = fields["since_step"] if fields["last_good_step"] is None else fields["last_good_step"]
        fields["interval"] = (good, lead["found_step"])
    return _answer(fields, DiagnosisInfo)


def _answer(fields: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return fields as JSON of the answer, with its defaults."""
    answer: dict[str, Any] = json.loads(encode_answer(convert_answer(fields, kind)))
    return answer
