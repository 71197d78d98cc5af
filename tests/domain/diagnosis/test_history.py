"""History: which value of a step is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trmon.domain.diagnosis.history import History, declares_replay

NAN = float("nan")


def of(**values: list[float]) -> History:
    """Two steps: one with its whole rollout and two updates, one with updates alone."""
    columns = {name: np.array(column) for name, column in values.items()}
    return History.of_rows(step=[3, 3, 3, 7, 7], update=[-1, 0, 1, 0, 1], values=columns)


def test_a_step_is_its_rollout_else_its_last_update() -> None:
    history = of(mismatch_kl_k1=[1, 2, 3, 4, 5])
    assert history.steps.tolist() == [3, 7]
    assert history.values["mismatch_kl_k1"].tolist() == [1, 5]


def test_what_the_rollout_lacks_an_update_may_tell() -> None:
    assert of(grad_norm=[NAN, 2, 3, 4, NAN]).values["grad_norm"].tolist() == [3, 4]


def test_of_what_grows_over_updates_the_largest_is_read() -> None:
    history = of(clip_fraction=[0, 0.3, 0.2, NAN, NAN], staleness_kl_k3=[0, 1, 2, 9, 8])
    np.testing.assert_array_equal(history.values["clip_fraction"], [0.3, NAN])
    assert history.values["staleness_kl_k3"].tolist() == [2, 9]


def test_a_stem_is_of_the_first_pair_that_is_there_at_all() -> None:
    history = of(total_kl_k3=[1, 1, 1, 1, 1], staleness_kl_k3=[2] * 5, staleness_tv=[2] * 5)
    assert history.find("kl_k3")[0] == "total_kl_k3"
    assert np.isnan(history.find("tv")[1]).all()
    assert history.find("staleness_tv")[1].tolist() == [2, 2]
    assert history.find("tv", pairs=("staleness",))[0] == "staleness_tv"


def test_a_pair_without_a_finite_value_is_not_there() -> None:
    history = of(mismatch_kl_k3=[NAN] * 5, mismatch_tv=[NAN] * 5, total_kl_k3=[NAN, 1, 1, 1, 1])
    assert history.find("kl_k3")[0] == "total_kl_k3"
    assert not history.has("mismatch_tv")


def test_an_unheard_of_signal_is_nan_throughout() -> None:
    name, values = of(tv=[1, 1, 1, 1, 1]).find("chi2_token")
    assert name == "chi2_token"
    assert np.isnan(values).all()


MODE = "actor_rollout_ref.actor.megatron.router_replay.mode"


@pytest.mark.parametrize(
    ("config", "is_declared"),
    [
        ({}, False),
        ({"router_replay": True}, True),
        ({"router_replay": False}, False),
        ({"router_replay": "R3"}, True),
        ({"router_replay": "disabled"}, False),
        ({"router_replay": {"mode": "R2"}}, True),
        ({"router_replay": {"mode": "disabled"}}, False),
        ({MODE: "R3"}, True),
        ({"actor_rollout_ref": {"actor": {"megatron": {"router_replay": {"mode": "R3"}}}}}, True),
        ({MODE: "disabled"}, False),
        ({MODE: None}, False),
    ],
)
def test_a_replay_is_declared_by_an_option_of_trmon_or_of_verl(config: dict[str, Any], *, is_declared: bool) -> None:
    assert declares_replay(config) is is_declared
