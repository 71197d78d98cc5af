"""Sentences: the same steps in every line of a run."""

from __future__ import annotations

from msgspec import structs

from trmon.api.diagnosis_answer import judgement_info
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.verdict import judge_run


def test_the_finding_that_leads_has_the_steps_of_the_whole_illness() -> None:
    catalogue, state = builtin_catalogue(), JudgeState()
    for step in range(40):
        values = {"mismatch_kl_k3": 0.0002 if step < 30 else 0.2}
        state = Judge(catalogue).fold(state, Row(place=Place(1, step), values=values, facts={}))
    judged = judge_run(state, catalogue)
    fell = structs.replace(judged, since=Place(1, 22), last_good=Place(1, 21))  # The reward fell before.
    info = judgement_info(fell, framework=None, config={})
    assert info.findings[0].headline == "engine mismatch, or stale rollouts since step 22 (last good step 21)"
    assert (info.since_step, info.last_good_step, info.findings[0].since_step) == (22, 21, 30)


def test_only_the_illness_has_a_last_good_step_in_words() -> None:
    catalogue, state = builtin_catalogue(), JudgeState()
    for step in range(60):
        values = {"reward_mean": 0.8 if step < 30 else 0.1, "entropy": 0.5 + 0.01 * (step % 3)}
        values["mismatch_kl_k3"] = 0.0002 if step < 25 else 0.2
        state = Judge(catalogue).fold(state, Row(place=Place(1, step), values=values, facts={}))
    judged = judge_run(state, catalogue)
    leading, *others = judgement_info(judged, framework=None, config={}).findings
    assert leading.headline == "engine mismatch, or stale rollouts since step 25 (last good step 24)"
    assert "reward collapse since step 30" in [one.headline for one in others]
