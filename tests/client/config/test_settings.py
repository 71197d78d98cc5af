"""Settings: arguments override variables, errors show no secret; any configuration becomes plain, bounded values."""

from __future__ import annotations

import argparse
import re
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
from trmon_client.config.service_address import variable_name
from trmon_client.config.settings import Mode, resolve_settings
from trmon_client.core.policies.policy import Policy

NAMED = {"project": "math", "run": "grpo"}


def test_every_argument_has_a_variable() -> None:
    values = {
        "project": "p",
        "run": "r",
        "url": "https://trmon.example/base/",
        "token": "abc",
        "owner": "me",
        "tags": "a, b,,c",
        "attempt": "third",
        "rank": "2",
        "world_size": "4",
        "spool_dir": "/tmp/spool",
        "policy": "geo_mask",
        "mode": "enforce",
    }
    found = resolve_settings({}, environment={variable_name(name): value for name, value in values.items()})
    assert (found.project, found.run, found.url, found.token) == ("p", "r", "https://trmon.example/base", "abc")
    assert (found.owner, found.tags, found.attempt) == ("me", ("a", "b", "c"), "third")
    assert (found.rank, found.world_size, found.spool_dir) == (2, 4, Path("/tmp/spool"))
    assert (found.policy, found.is_policy_asked_for) == (Policy.parse("geo_mask"), True)
    assert found.mode is Mode.ENFORCE


def test_an_argument_overrides_its_variable_except_the_mode() -> None:
    environment = {"TRMON_OWNER": "other", "TRMON_MODE": "off", "TRMON_URL": ""}
    found = resolve_settings({**NAMED, "owner": "me", "mode": "enforce"}, environment=environment)
    assert (found.owner, found.mode, found.url) == ("me", Mode.OFF, None)


def test_the_defaults_are_observe_mode_trm_auto_and_a_local_spool() -> None:
    found = resolve_settings(NAMED, environment={})
    assert (found.mode, found.policy.name, found.is_policy_asked_for) == (Mode.OBSERVE, "trm_auto", False)
    assert found.run_spool_dir == Path.cwd() / "trmon-spool/math/grpo"
    assert found.page_url is None


NO_FUNCTION = r"on_incident \(TRMON_ON_INCIDENT\) must be a function"
MISTAKES = {
    "no project": ({"project": None}, "project is needed.*TRMON_PROJECT"),
    "no run of several processes": ({"run": None, "rank": 0, "world_size": 2}, "run is needed.*TRMON_RUN"),
    "a run with a slash": ({"run": "a/b"}, r"run \(TRMON_RUN\) must be 1 to 128 letters"),
    "a name of 10,000 characters": ({"project": "x" * 10_000}, "project .{0,200}$"),
    "an unknown mode": ({"mode": "on"}, "mode .* observe, enforce or off, and is 'on'"),
    "an unknown policy": ({"policy": "trm_min"}, "trm_min"),
    "a url of another scheme": ({"url": "ftp://trmon"}, "url .*http"),
    "a url with the end of its line": ({"url": "http://trmon:8642\n"}, "url .*http"),
    "a spool that is no path": ({"spool_dir": 5}, "spool_dir .*path"),
    "a spool with NUL": ({"spool_dir": "a\0b"}, "spool_dir .*path"),
    "a url with a query": ({"url": "http://trmon:8642?"}, "url .*http"),
    "a port that is none": ({"url": "http://trmon:port"}, "url .*http"),
    "a rank without a world size": ({"rank": 1}, "rank and world_size"),
    "a rank beyond the world": ({"rank": 4, "world_size": 4}, "rank must be 0 to world_size - 1"),
    "a rank that is no number": ({"rank": "one", "world_size": 4}, r"rank \(TRMON_RANK\) must be a whole number"),
    "an attempt without characters": ({"attempt": "a\n"}, "attempt .*printable"),
    "another tracker": ({"tracker": "comet"}, r"tracker \(TRMON_TRACKER\) must be wandb, mlflow or tensorboard:FOLDER"),
    "a function that is not there": ({"on_incident": "math:act"}, NO_FUNCTION),
    "a module that is not there": ({"on_incident": "no_such:act"}, NO_FUNCTION),
    "a tracker without its folder": ({"tracker": "tensorboard"}, r"tracker \(TRMON_TRACKER\) must be"),
    "no step to record": ({"record_steps": "0"}, r"record_steps \(TRMON_RECORD_STEPS\) must be"),
    "no switch": ({"record_texts": "maybe"}, r"record_texts \(TRMON_RECORD_TEXTS\) must be"),
    "too many tags": ({"tags": [str(i) for i in range(65)]}, "tags .*at most 64"),
}


@pytest.mark.parametrize(("given", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_an_error_names_the_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_settings({**NAMED, **given}, environment={})


@pytest.mark.parametrize("given", [{"token": "s3cret \n"}, {"url": "https://me:s3cret@h"}, {"url": "http://:s3cret@h"}])
def test_neither_errors_nor_settings_show_a_secret(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        resolve_settings({**NAMED, **given}, environment={})
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(resolve_settings({**NAMED, "token": "s3cret"}, environment={}))


def test_the_token_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    environment = {"TRMON_TOKEN_FILE": str(path)}
    assert resolve_settings(NAMED, environment=environment).token == "s3cret"
    assert resolve_settings({**NAMED, "token": "given"}, environment=environment).token == "given"
    with pytest.raises(ValueError, match="TRMON_TOKEN and TRMON_TOKEN_FILE are both set"):
        resolve_settings(NAMED, environment={**environment, "TRMON_TOKEN": "other"})
    path.write_text("s3 cret\n")
    with pytest.raises(ValueError, match=r"TRMON_TOKEN_FILE names .*, which must hold printable ASCII") as caught:
        resolve_settings(NAMED, environment=environment)
    assert "s3 cret" not in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match="TRMON_TOKEN_FILE cannot be read"):
        resolve_settings(NAMED, environment=environment)


def test_a_run_without_a_name_gets_the_one_of_its_job_else_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/me/train grpo.py"])
    environment = {"TRMON_PROJECT": "math"}
    names = {resolve_settings({}, environment=environment).run for _ in range(20)}
    assert len(names) > 1
    assert all(re.fullmatch(r"train-grpo-\d{8}-\d{6}-[0-9a-f]{4}", name) for name in names)
    torchrun = environment | {"TORCHELASTIC_RUN_ID": "job 7", "RANK": "1", "WORLD_SIZE": "2"}
    assert resolve_settings({}, environment=torchrun).run == "torchrun-job-7"
    slurm = environment | {"SLURM_JOB_ID": "123", "SLURM_RESTART_COUNT": "2"}
    assert resolve_settings({}, environment=slurm).run == "slurm-123"


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
