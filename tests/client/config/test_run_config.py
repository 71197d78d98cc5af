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

from trmon_client.config.run_config import MAX_BYTES, MAX_TEXT, plain_config
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


def test_secrets_are_replaced_in_what_an_object_holds() -> None:
    config = {"hub": argparse.Namespace(hf_token="abcdef", eos_token="</s>"), "optimizer": Optimizer(lr=0.5)}
    assert plain_config(config) == {"hub": {"hf_token": "***", "eos_token": "</s>"}, "optimizer": {"lr": 0.5}}


@pytest.mark.parametrize("n_before", range(MAX_TEXT - 40, MAX_TEXT, 4))
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(n_before: int) -> None:
    text = plain_config({"log": "x " * (n_before // 2) + "postgresql://me:correct-horse-battery@db/x"})["log"]
    assert len(text) <= MAX_TEXT
    assert "corr" not in text
