"""The diagnosis and the budget of a run over HTTP, its remedy, one risk everywhere, and the advice to its trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.findings.judgements import found, judged
from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import finished
from tests.domain.trainer import report as healthy_report
from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun, Serve, own_run
from tests.fixtures.trainer import finish, send_step, train_until_risk
from tests.fixtures.waiting import eventually
from tests.worker.watched_run import ORIGIN as WATCHED_ORIGIN
from tests.worker.watched_run import WatchedRun
from trmon.api.diagnosis_answer import diagnosis_info
from trmon.assistants.run_tools import collapse_risk
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskReading
from trmon.domain.findings.verdict import Word
from trmon.domain.runs.run import RunState
from trmon_client.api import Service
from trmon_client.core import divergence, statistics, wire
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences

RUN = replace(MemoryLog().stored_run, last_step=40, state=RunState.RUNNING)
VERL = {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}}, "trainer": {"save_freq": 20}}


def test_a_run_without_a_batch_has_no_diagnosis_and_no_budget(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    for path in ("/diagnosis", "/budget"):
        answer = run.ask("GET", path)
        assert answer.status_code == 404
        assert str(run.key) in answer.json()["detail"]


def test_a_step_that_no_other_follows_is_not_judged_yet(run: OwnRun) -> None:
    run.train(steps=range(1), end=False)
    known = eventually(lambda: run.ask("GET", "/diagnosis"), lambda answer: answer.status_code == 200).json()
    assert (known["word"], known["sentence"], known["rows"]) == (
        "too few rows to judge",
        "too few rows to judge (0 of 20)",
        0,
    )
    assert (known["step"], known["findings"], known["remedy"]) == (0, [], None)
    assert run.get()["status"]["verdict"]["kind"] == "too_few_rows_to_judge"


def test_the_remedy_is_in_the_options_of_the_runs_own_framework_and_at_its_end_for_the_next_one() -> None:
    ill = judged(found("step_too_large"))
    remedy = diagnosis_info(replace(RUN, config=VERL), ill).remedy
    assert remedy is not None
    assert remedy.options["actor_rollout_ref.actor.optim.lr"] == "5e-7"
    unknown = diagnosis_info(RUN, ill).remedy
    assert unknown is not None
    assert (unknown.options, unknown.options_in_words) == ({}, {})
    assert diagnosis_info(RUN, judged()).remedy is None
    ended = diagnosis_info(replace(RUN, state=RunState.FINISHED), ill)
    assert ended.has_ended
    assert ended.remedy is not None
    assert ended.remedy.first.startswith("In the next run, ")


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        ({"reward": None}, ["reward"]),
        ({"measures_agreement": False, "measures_training": False}, ["agreement", "training"]),
    ],
)
def test_what_is_not_measured_is_said_with_how_to_measure_it(lacking: dict[str, object], what: list[str]) -> None:
    info = diagnosis_info(RUN, judged(word=Word.NOT_JUDGED, **lacking))
    assert [one.what for one in info.unmeasured] == what
    assert all("log_" in one.how for one in info.unmeasured)


def test_what_an_empty_mask_hides_is_not_called_unmeasured(run: OwnRun) -> None:
    empty = columns(n_tokens=np.zeros(4, np.int64))
    run.send(wire.Start(**ORIGIN))
    for step in range(22):
        send_step(run.client, run.key, step=step, content=empty)
    found = eventually(lambda: run.ask("GET", "/diagnosis").json(), lambda said: bool(said.get("findings")))
    assert (found["findings"][0]["title"], found["unmeasured"]) == ("no token in the loss", [])
    assert found["remedy"]["first"].startswith("Look at the mask")
    assert "scalars alone" not in found["answers"]["words"]


def test_the_risk_of_a_collapse_is_past_once_the_reward_has_collapsed_or_the_run_has_finished() -> None:
    risk = RiskReading(probability=0.9, drivers=())
    before, collapsed = judged(), judged(found("reward_collapse"))
    assert [
        diagnosis_info(run, judgement, risk=risk).collapse_risk.level  # type: ignore[union-attr]
        for run, judgement in ((RUN, before), (RUN, collapsed), (replace(RUN, state=RunState.FINISHED), before))
    ] == ["page", "past", "past"]


def diagnosed_risk(run: OwnRun, *, at_step: int) -> Any:
    """Return the risk in the diagnosis once it is of a step."""
    return eventually(lambda: run.get("/diagnosis"), lambda found: found.get("step") == at_step)["collapse_risk"]


@pytest.fixture
def run_judged_early(serve: Serve) -> Iterator[OwnRun]:
    """A run whose newest step is judged after two seconds."""
    with serve(grace_seconds=2.0).client() as client:
        yield own_run(client)


def test_the_risk_of_the_newest_step_is_the_same_everywhere(run_judged_early: OwnRun) -> None:
    run = run_judged_early
    newest_step = train_until_risk(run.client, run.key)
    risk = diagnosed_risk(run, at_step=newest_step)
    drivers = risk["drivers"]
    names = ("collapse_risk", *(f"collapse_risk:{driver['input']}" for driver in drivers))
    signals = run.get(f"/signals?names={','.join(names)}")["signals"]
    newest = [signals[name]["last"][-1] for name in names]
    assert [risk["probability"], *(driver["log_odds"] for driver in drivers)] == newest
    assert newest[1:] == sorted(newest[1:], reverse=True)
    file = shipped_model().file
    assert (risk["horizon_steps"], risk["warn_at"], risk["page_at"]) == (200, file.warn_at, file.page_at)
    assert risk["model"] == {"name": file.name, "fitted_on": file.fitted_on}
    brief = eventually(lambda: run.get()["status"], lambda status: status["judged_step"] == newest_step)[
        "collapse_risk"
    ]
    assert brief == {name: risk[name] for name in ("probability", "level", "driven_by", "calibration")}
    with Service(str(run.client.base_url)) as service:
        told = collapse_risk(service, str(run.key))
    assert [one["words"] for one in told["drivers"]] == [one["words"] for one in drivers]
    assert [told["probability"], *(one["log_odds"] for one in told["drivers"])] == pytest.approx(newest, rel=1e-3)
    assert (told["level"], told["calibration"]) == (risk["level"], risk["calibration"])
    line = f'trmon_collapse_risk{{project="{run.key.project}",run="grpo"}} {risk["probability"]!r}'
    eventually(lambda: run.client.get("/metrics").text, lambda text: line in text)
    finish(run.client, run.key, steps=range(newest_step + 2))
    assert diagnosed_risk(run, at_step=newest_step + 1)["level"] == "past"
    assert run.get()["status"]["collapse_risk"]["level"] == "past"


def test_a_run_has_no_risk_in_its_first_rows(run: OwnRun) -> None:
    run.train(steps=range(7), end=False)
    assert diagnosed_risk(run, at_step=4) is None
    assert run.get()["status"]["collapse_risk"] is None
    assert run.get("/signals?names=collapse_risk")["signals"]["collapse_risk"]["last"][-1] is None
    assert f'trmon_collapse_risk{{project="{run.key.project}"' not in run.client.get("/metrics").text


CONFIG: dict[str, Any] = {
    "lr": 1e-3,
    "max_steps": 50,
    "advantages_centred": True,
    "lag_law": {"r_batch": 0.01, "r_crit": 0.4, "update_norm": 2},
    "vllm_importance_sampling_mode": "sequence_truncate",
}


def of_logits(*, version: int) -> Columns:
    """Return a batch of an old engine with the logits of both sides: the TVs and the KL are exact."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 6, 8))
    b = a + 0.01 * rng.normal(size=a.shape)
    tokens, mask = rng.integers(0, 8, (4, 6, 1)), np.ones((4, 6), bool)
    mu, pi = (np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), tokens, -1)[..., 0] for x in (a, b))
    columns = statistics.columns(
        rollout_logprobs=mu,
        old_logprobs=pi,
        logprobs=pi,
        mask=mask,
        advantages=[0.5, -0.5, 0.25, -0.25],
        versions=[version] * 4,
        trainer_version=version + 4,
        old_version=version,
    )
    return with_divergences(columns, divergence.exact(rollout_logits=a, logits=b, mask=mask, tv=True))


def test_the_logits_of_both_engines_reach_the_budget(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config=CONFIG))
    for step in range(6):
        content = of_logits(version=step)
        made = wire.Report(
            **ORIGIN,
            step=step,
            parcel=wire.pack_columns(content),
            kl_is=content.kl_is,
            kl_pair=content.kl_pair,
            trainer_version=content.trainer_version,
            old_version=content.old_version,
            finished=[wire.ChunkCount(step - 1, None, 1)] if step else [],
            scalars={"lr": 1e-3, "grad_variance": 1.0},
        )
        run.send(made)
    finish(run.client, run.key, steps=range(6))
    found = run.get("/budget")
    assert (found["step"], found["steps"]) == (5, 6)
    assert [item["state"] for item in found["mismatch"]] == ["exceeded", "within", "not_measured"]
    assert (found["lag"]["lag"], found["lag"]["horizon"], found["lag"]["lr"]) == (4, 50, 1e-3)
    assert found["lag"]["lr_scale"] == pytest.approx(min(0.01 / (4 * 2), 0.4 / (50 * 2)))
    assert found["split"]["exact_max"] == pytest.approx(of_logits(version=0)["max_tv"].max(), rel=1e-5)
    assert 0 < found["split"]["alpha_1"] <= found["split"]["exact_max"]
    assert math.isfinite(found["minorizer"])
    assert [method["kind"] for method in found["pipeline"]["methods"]] == ["async"]
    assert found["pipeline"]["anti_patterns"][1]["shown_by"][0] == {
        "name": "vllm_importance_sampling_mode",
        "value": "sequence_truncate",
    }


def batch(step: int, *, drift: float) -> Columns:
    """Return 64 sequences whose log weights have a deviation of `drift`."""
    random = np.random.default_rng(step)
    return columns(64, total_sum_d=random.normal(0.0, drift, 64))


def advice_of(run: OwnRun) -> dict[str, Any]:
    """Return the advice beside the budget, empty where there is none."""
    return run.get("/budget").get("advice") or {}


def test_a_drifting_run_is_advised_to_lower_its_learning_rate_and_its_next_attempt_is_not(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config={"kl_target": 6.0}))
    for step in range(30):
        send_step(run.client, run.key, step=step, content=batch(step, drift=0.1 if step < 24 else 1.5))
        if step == 23:
            # What the run was like at its start is known once its first rows are written.
            eventually(lambda: advice_of(run), lambda advice: advice.get("step") == 22)
    advice = eventually(lambda: advice_of(run), lambda advice: advice.get("step") == 28)
    assert 0 < advice["lr_scale_sgd"] < advice["lr_scale"] < 0.8
    assert advice["lr_scale_sgd"] == pytest.approx(advice["lr_scale"] ** 2)
    assert "ess_seq" in advice["reasons"]["lr_scale"]
    assert (advice["lr_decay"], advice["kl_factor"]) == (None, None)
    heard = run.post(report(step=40)).advice
    assert heard is not None
    assert (heard["lr_scale"], heard["reasons"].keys()) == (advice["lr_scale"], advice["reasons"].keys())
    assert run.post(report(step=0, attempt="second", launch="launch-2")).advice is None


def test_the_penalty_follows_the_trainers_own_kl_once_a_step_has_closed(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN, config={"kl_target": 6.0, "kl_horizon": 100}))
    assert run.post(report(step=0, scalars={"ref_kl": 60.0})).advice is None
    run.send(report(step=1, finished=[wire.ChunkCount(0, None, 1)]))
    advice = eventually(lambda: advice_of(run), lambda advice: advice.get("step") == 0)
    assert advice["kl_factor"] == 1 + 0.2 * 4 / 100


def teach(watched: WatchedRun, steps: range, **fields: Any) -> None:
    for step in steps:
        counts = finished((step - 1, None, 1)) if step else []
        watched.receive(healthy_report(step, finished=counts, **fields), at=10.0 * step)


@pytest.mark.parametrize(
    ("config", "health", "stops"),
    [
        pytest.param({"stop_on_collapse": True}, {"scalars": {"grad_norm": math.nan}}, True, id="NaN, opted in"),
        pytest.param({}, {"scalars": {"grad_norm": math.nan}}, False, id="NaN, not opted in"),
        pytest.param({"stop_on_collapse": "yes"}, {"scalars": {"grad_norm": math.nan}}, False, id="not a truth value"),
        pytest.param({"stop_on_collapse": True}, {"health": "corrupt"}, False, id="another page"),
    ],
)
def test_a_run_should_stop_only_on_a_collapse_and_if_it_opted_in(
    config: dict[str, Any], health: dict[str, Any], stops: bool
) -> None:
    run = WatchedRun()
    run.receive(wire.Start(**WATCHED_ORIGIN, config=config), at=0.0)
    teach(run, range(6))
    assert run.view.advice is not None
    assert not run.view.advice.stop
    teach(run, range(6, 14), **health)
    assert run.view.advice.stop
    assert run.view.advice.should_stop is stops
    assert ("should_stop" in run.view.advice.reasons) is stops


def test_a_jump_in_response_length_beside_drift_cuts_the_learning_rate_once() -> None:
    run = WatchedRun()
    for step in range(150):
        length, value = (32, 0.15) if step < 120 else (160, 0.5)
        counts = finished((step - 1, None, 1)) if step else []
        content = columns(8, n_tokens=np.full(8, length))
        sent = healthy_report(step, content=content, policy=None, finished=counts, scalars={"ref_kl": value})
        run.receive(sent, at=10.0 * step)
    assert run.view.judgement is not None
    assert "length_surge" in [found.finding for found in run.view.judgement.findings]
    assert run.view.advice is not None
    cut = run.view.advice.lr_decay
    assert cut is not None
    assert (cut.factor, 120 <= cut.step <= 135) == (0.5, True)
