"""Secrets in texts that leave the trainer."""

from __future__ import annotations

import pytest

from trmon_client.config.run_config import redact, redact_values

SECRETS = {
    "a password in a URL": ("postgresql://me:hunter2@db/x", "postgresql://***@db/x"),
    "a bearer token": ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer ***"),
    "a named token": ("login(token='abcdef123')", "login(token='***')"),
    "a named key in JSON": ('{"wandb_api_key": "0123abcd"}', '{"wandb_api_key": "***"}'),
    "a key of a known form": ("invalid key hf_abcdefghijklmnop", "invalid key hf_***"),
    "a password": ("password=correct-horse", "password=***"),
}


@pytest.mark.parametrize(("text", "redacted"), SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_is_replaced(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    ["n_tokens=512", "max_token: 4096", "KeyError: 'reward'", "https://example.com/a@b", "the tokenizer is gone", ""],
)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


def test_a_given_secret_is_replaced_wherever_it_stands() -> None:
    assert redact("at my-own-secret: x", secrets=["my-own-secret", None]) == "at ***: x"


def test_a_configuration_loses_its_secrets_by_name_and_by_form() -> None:
    given = {
        "learning_rate": 1e-6,
        "max_tokens": 512,
        "hub_token": "abc",
        "model_init_kwargs": {"api_key": "k", "dtype": "bfloat16"},
        "servers": ["http://me:word@host:8000"],
        "push_to_hub_token": None,
        "wandb": {"key": "0123abcd", "project": "math"},
        "input_key": "prompt",
    }
    assert redact_values(given) == {
        "learning_rate": 1e-6,
        "max_tokens": 512,
        "hub_token": "***",
        "model_init_kwargs": {"api_key": "***", "dtype": "bfloat16"},
        "servers": ["http://***@host:8000"],
        "push_to_hub_token": None,
        "wandb": {"key": "***", "project": "math"},
        "input_key": "prompt",
    }
