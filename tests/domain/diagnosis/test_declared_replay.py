"""Which configurations declare a replay of the rollout's routing."""

from __future__ import annotations

from typing import Any

import pytest

from trmon.domain.diagnosis.history import declares_replay

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
