"""What the user says of names that no table has, and what is suggested for them."""

from __future__ import annotations

import pytest

from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.translation import translate
from trmon.domain.framework_names.user_names import nearest_names, parse_mapped


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mean_rewards", "mean_reward"),
        ("policy/entropy", "policy_entropy"),
        ("critic/score/avg", "critic/score/mean"),
        ("kl_k33", "kl_k3"),
    ],
)
def test_names_that_resemble_a_known_one_get_it_as_a_suggestion(name: str, nearest: str) -> None:
    assert nearest in nearest_names(name)


def test_a_name_that_resembles_none_gets_no_suggestion() -> None:
    assert nearest_names("zzzzzzqqqq") == ()


def test_lines_map_names_to_signals() -> None:
    lines = ["# our loop", "", "my_reward = reward_mean", "kl=old=kl_k3"]
    mapped = parse_mapped(lines, source="map.txt")
    assert mapped == {"my_reward": "reward_mean", "kl=old": "mismatch_kl_k3"}
    assert translate({"my_reward": 0.5, "reward": 0.1, "kl=old": "0.2"}, mapped=mapped).signals == {
        "reward_mean": 0.5,
        "mismatch_kl_k3": 0.2,
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("my_reward", "expected NAME=SIGNAL"),
        ("=reward_mean", "expected NAME=SIGNAL"),
        ("my_reward=rewardmean", "no signal 'rewardmean'; did you mean reward_mean"),
        ("my_reward=zzz", "no signal 'zzz'"),
        ("twice=loss\ntwice=entropy", "mapped to loss and to entropy"),
    ],
)
def test_a_line_that_maps_nothing_is_answered_with_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="--map") as raised:
        parse_mapped(line.split("\n"), source="--map")
    assert why in str(raised.value)


def test_what_the_user_says_precedes_what_a_table_says() -> None:
    line = translate({"critic/score/mean": 0.5, "actor/grad_norm": 0.1}, mapped={"critic/score/mean": "eval_reward"})
    assert line.signals == {"eval_reward": 0.5, "grad_norm": 0.1}
