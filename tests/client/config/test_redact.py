"""Secrets in texts that leave the trainer."""

from __future__ import annotations

import pytest

from trmon_client.config.redact import redact

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
