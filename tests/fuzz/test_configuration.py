"""Settings, rules, and the rows that the judge reads."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import get_args
from unittest.mock import patch

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from tests.domain.findings.series import COUNT, Case, one_of_series
from tests.fixtures.fuzzing import PLAIN_VALUES, edited, edited_document
from tests.worker.watched_run import WATCH_CONFIG, WatchedRun, finish, train
from trmon.config.settings import CLIENT_SETTINGS, Settings, unknown_variables
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.findings.verdict import judge_run
from trmon.domain.rules.rule import RuleSet
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon_client.config.service_address import variable_name
from trmon_client.config.settings import resolve_settings

pytestmark = pytest.mark.fuzz

SECRET = "hunter2hunter2"
SECRETS = [name for name, field in Settings.model_fields.items() if SecretStr in get_args(field.annotation)]
PLAIN = [name for name in Settings.model_fields if name not in SECRETS]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=24)
URLS = st.builds("{}://{}{}".format, st.sampled_from(["http", "https", "", "ftp"]), TEXT, TEXT)
JSON = st.sampled_from(["{}", "[]", "null", '{"ana": ["slack"]}', '{"x": "json://h"}', '{"a": 1', "NaN", "[" * 9999])
VALUES = st.one_of(TEXT, URLS, JSON, st.integers().map(str), st.floats().map(str), st.sampled_from(["true", "0", ","]))
SECRET_VALUES = st.builds("{}{}{}".format, URLS | TEXT, st.just(SECRET), TEXT)


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from(PLAIN), VALUES, max_size=4),
    st.dictionaries(st.sampled_from(SECRETS), SECRET_VALUES, max_size=3),
)
def test_a_service_is_set_up_or_told_what_is_wrong(plain: dict[str, str], secret: dict[str, str]) -> None:
    environment = {f"TRMON_{name.upper()}": value for name, value in (plain | secret).items()}
    with patch.dict(os.environ, environment, clear=True):
        assert not list(unknown_variables(os.environ))
        try:
            accepted = Settings()
        except ValidationError as refusal:
            told = [f"{wrong['loc']} {wrong['msg']}" for wrong in refusal.errors()]
            assert {wrong["loc"][0] for wrong in refusal.errors()} <= Settings.model_fields.keys()
        except SettingsError as refusal:
            told = [str(refusal), str(refusal.__cause__)]
        else:
            told = [repr(accepted)]
            assert accepted.store_url
    assert SECRET not in " ".join(told)


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from(CLIENT_SETTINGS), VALUES | st.sampled_from(["math", "1", "-1"]), max_size=6),
    st.dictionaries(st.sampled_from(["url", "token"]), SECRET_VALUES, max_size=2),
)
def test_a_client_is_set_up_or_told_what_is_wrong(plain: dict[str, str], secret: dict[str, str]) -> None:
    named = {"project": "math", "run": "grpo"} | plain | secret
    environment = {variable_name(name): value for name, value in named.items()}
    try:
        accepted = resolve_settings({}, environment=environment)
    except ValueError as refusal:
        told = str(refusal)
        assert told
    else:
        told = repr(accepted).replace(repr(accepted.url), "")
    assert SECRET not in told


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


@settings(max_examples=30)
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


CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
STRANGE = (0.0, -1.0, 5e-324, 1e300, -1e300, math.nan, math.inf, -math.inf)
RESTARTS = 0.02


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(0, COUNT - 1), st.sampled_from([0.0, 0.02, 0.3]))
def test_every_row_is_judged(seed: int, place: int, strange: float) -> None:
    case, rng, state = one_of_series(seed, place), random.Random(seed), JudgeState()
    for row in disturbed(case, strange, rng):
        state = JUDGE.fold(state, row)
    for found in (state, JUDGE.finish(state)):
        assert judge_run(found, CATALOGUE) is not None
    assert state.rows == len(case.rows)


def disturbed(case: Case, strange: float, rng: random.Random) -> Iterator[Row]:
    """Yield rows with values left out or replaced, whose trainer goes back in steps and changes its configuration."""
    attempt, step, config = 0, 0, 0
    for values in case.rows:
        if rng.random() < RESTARTS:
            attempt, step = attempt + 1, max(0, step - rng.randint(0, 5))
        config += rng.random() < RESTARTS
        facts = {"replay_declared": 1.0} if rng.random() < 0.5 else {}
        yield Row(place=Place(attempt, step), values=changed(values, strange, rng), facts=facts, config=str(config))
        step += 1


def changed(values: Mapping[str, float], strange: float, rng: random.Random) -> dict[str, float]:
    """Return the values of a row, each left out, replaced or scaled with a probability."""
    found = {}
    for name, value in values.items():
        kind = rng.choice(("left out", "replaced", "scaled")) if rng.random() < strange else ""
        if kind == "replaced":
            value = rng.choice(STRANGE)
        elif kind == "scaled":
            value *= 10.0 ** rng.randint(-12, 12)
        if kind != "left out":
            found[name] = value
    return found
