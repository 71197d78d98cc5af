"""No rules file breaks the service: it is refused with the place, or its rules judge a run without failing it."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.fuzzing import PLAIN_VALUES, edited, edited_document
from tests.worker.watched_run import WATCH_CONFIG, WatchedRun, finish, train
from trmon.domain.errors import InvalidInput
from trmon.domain.rules.rule import RuleSet
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules

pytestmark = pytest.mark.fuzz

BUILTIN = files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8")
FINDINGS = [
    {"name": "engine_mismatch", "limits": {"kl_k3": 0.1}, "severity": "page"},
    {"name": "reward_collapse", "disabled": True},
]
ENTRIES = [*yaml.safe_load(BUILTIN), *FINDINGS]
CONDITIONS = [entry["when"] for entry in ENTRIES if "when" in entry]
WORDS = st.sampled_from(["all", "any", "not", "signal", "above", "below", "clear", "growth", "over", "absent", "state"])
CONDITION_VALUES = st.recursive(
    st.sampled_from(CONDITIONS) | PLAIN_VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
)
LISTS = st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=2)
TEXTS = st.one_of(
    edited_document(LISTS, leaves=CONDITION_VALUES).map(lambda rules: yaml.safe_dump(rules, allow_unicode=True)),
    edited(LISTS.map(yaml.safe_dump).map(str.encode)).map(lambda data: data.decode(errors="replace")),
    st.text(max_size=64),
)


@settings(max_examples=300)
@given(TEXTS)
def test_rules_are_refused_or_judge_a_run(text: str) -> None:
    try:
        rules = overlay_rules(builtin_rules(), text)
    except InvalidInput as refusal:
        assert refusal.field.startswith("rules")
        return
    judge(rules)


def judge(rules: RuleSet) -> None:
    """Train a run under the rules, well and ill, to its end."""
    watched = WatchedRun(watch_config=replace(WATCH_CONFIG, rules=lambda: rules))
    train(watched, range(6), health="corrupt", scalars={"grad_norm": "nan", "lr": 1e300})
    watched.receive(finish(5), at=60.0)
    watched.tick(1e6)
    assert not watched.observer.failures
    assert len(watched.log.rows) == 6
