"""Any configuration of a trainer becomes plain, bounded values."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from trmon_client.config.run_config import MAX_BYTES, plain_config, redact, redact_values
from trmon_client.config.settings import Mode

NESTED: dict[str, Any] = {}
NESTED["self"] = NESTED


@dataclass
class Optimizer:
    lr: float


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Missing(dict[str, Any]):
    """As OmegaConf's, which raise where a value is still "???"."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None:
            raise LookupError(name)
        return value

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class Unlisted(dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a configuration without a value")

    def items(self) -> Any:
        return list(self)


PLAIN = {"lr": 1e-6, "steps": 3, "on": True, "none": None, "name": "grpo"}
VALUES = {
    "plain values": (PLAIN, PLAIN),
    "a namespace": (argparse.Namespace(lr=0.5), {"lr": 0.5}),
    "namespaces and dataclasses within": (
        {"a": types.SimpleNamespace(b=argparse.Namespace(c=1)), "d": Optimizer(lr=0.5)},
        {"a": {"b": {"c": 1}}, "d": {"lr": 0.5}},
    ),
    "numbers of numpy": ({"x": np.float64(0.5), "y": np.float32(0.5), "n": np.int64(3)}, {"x": 0.5, "y": 0.5, "n": 3}),
    "sequences and sets": ({"a": (1, 2), "b": {3}}, {"a": [1, 2], "b": [3]}),
    "paths, enums and classes": ({"p": Path("a/b"), "m": Mode.OFF}, {"p": "a/b", "m": "off"}),
    "keys that are no text": ({1: {None: 2}}, {"1": {"None": 2}}),
    "numbers beyond 64 bits": ({"seed": 1 << 80}, {"seed": str(1 << 80)}),
    "half a character and NUL": ({"a\udcff": "b\0"}, {"a?": "b\ufffd"}),
    "numbers that are too large": ({"n": 10**5000, "x": Fraction(10**400)}, {"n": "ValueError", "x": "OverflowError"}),
    "what has no text": ({"a": Mute(), "b": 1}, {"a": "Mute", "b": 1}),
    "values that are missing": ({"a": Missing(x=None, y=2)}, {"a": {"x": "LookupError", "y": 2}}),
    "what cannot be listed": (Unlisted(), {}),
    "nothing that has a content": (42, {}),
}


@pytest.mark.parametrize(("config", "expected"), VALUES.values(), ids=VALUES.keys())
def test_values_become_plain(config: Any, expected: dict[str, Any]) -> None:
    assert plain_config(config) == expected


def test_a_recursive_configuration_ends() -> None:
    assert msgspec.msgpack.encode(plain_config(NESTED))


def test_an_entry_that_does_not_fit_is_left_out_and_the_rest_stays() -> None:
    config = {"lr": 0.5, **{f"text{i}": "x" * 4096 for i in range(200)}, "seed": 1}
    kept = plain_config(config)
    assert len(msgspec.msgpack.encode(kept)) <= MAX_BYTES
    assert (kept["lr"], kept["seed"]) == (0.5, 1)


def test_an_entry_of_too_many_values_is_left_out_and_the_rest_stays() -> None:
    rows = [[1] * 1000] * 1000
    assert plain_config({"lr": 0.5, "rows": rows, "more": rows, "seed": 1}) == {"lr": 0.5, "seed": 1}


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
    assert redact(f"at my-own-secret: {text}", secrets=["my-own-secret", None]) == f"at ***: {redacted}"


@pytest.mark.parametrize(
    "text",
    ["n_tokens=512", "max_token: 4096", "KeyError: 'reward'", "https://example.com/a@b", "the tokenizer is gone", ""],
)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


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
