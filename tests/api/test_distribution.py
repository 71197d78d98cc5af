"""What policies rejected over the steps of a run: the reasons, and the distribution of bounded statistics."""

from __future__ import annotations

import numpy as np

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun
from tests.fixtures.trainer import send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy, preset

PAIR = "mismatch_or_primary"


def test_every_step_has_the_rejected_fraction_by_reason(run: OwnRun) -> None:
    run.train(steps=range(2), end=False)
    bad = columns(
        4,
        mismatch_sum_k3=np.array([9.0, 0, 0, 0]),
        mismatch_max_k3=np.array([9, 0, 0, 0], "<f4"),
        n_invalid=[0, 2, 0, 0],
    )
    send_step(run.client, run.key, step=2, content=bad)
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(2, None, 1)]))
    found = eventually(lambda: run.get("/reasons"), lambda found: len(found["steps"]) == 3)
    assert (found["steps"], found["mask_rate"]) == ([0, 1, 2], [0.0, 0.0, 0.5])
    assert found["reasons"] == {"invalid_logprobs": [0.0, 0.0, 0.25], "mean_k3": [0.0, 0.0, 0.25]}


def test_a_criterion_and_steps_are_selected(run: OwnRun) -> None:
    run.train(steps=range(6))
    found = run.get("/distribution?statistic=mean_k3&from=2&to=3")
    assert found["chosen"] == {"statistic": "mean_k3", "pair": PAIR, "where": "kl_not_exact", "n_rejected": 0}
    assert (found["steps"], found["upper"]) == ([2, 3], [0.02, 0.02])
    assert {criterion["statistic"] for criterion in found["criteria"]} == {"max_binary_kl", "max_abs_d", "mean_k3"}
    assert run.get("/distribution?points=2")["steps"] == run.get("/reasons?points=2")["steps"] == [2, 5]


def test_the_bound_of_a_step_is_the_one_active_at_the_step(run: OwnRun) -> None:
    loose = Policy.parse(
        {"name": "loose", "criteria": [{"statistic": "mean_k3", "pair": PAIR, "upper": 0.5, "where": "kl_not_exact"}]}
    )
    run.send(wire.Start(**ORIGIN), report(step=0, policy=preset("trm_auto").hash))
    assert run.ask("PUT", "/policy", {"policy": loose.spec()}).status_code == 200
    run.send(report(step=1, policy=loose.hash))
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(step, None, 1) for step in (0, 1)]))
    found = eventually(
        lambda: run.get("/distribution?statistic=mean_k3"), lambda found: len(found.get("steps", ())) == 2
    )
    assert found["upper"] == [0.02, 0.5]


def test_a_run_without_steps_has_neither(run: OwnRun) -> None:
    run.train(steps=(), end=False)
    assert run.get("/reasons") == {"steps": [], "mask_rate": [], "reasons": {}}
    found = run.get("/distribution")
    assert (found["chosen"], found["steps"], found["criteria"]) == (None, [], [])
