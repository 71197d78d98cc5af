"""No environment breaks the settings: they are accepted or refused by name, and no refusal shows a secret."""

from __future__ import annotations

import os
from typing import get_args
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from trmon.config.settings import CLIENT_SETTINGS, Settings, unknown_variables
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


@settings(max_examples=300)
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


@settings(max_examples=300)
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
