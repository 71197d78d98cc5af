"""A run is named and configured by its framework, unless TRMON_ variables say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from trmon_client.config.settings import Mode
from trmon_client.integrations.framework_runs import (
    batch_arguments,
    begin_monitor,
    described_config,
    hook_fitting,
    hook_method,
    report_batch,
    report_numbers,
    run_settings,
    unfit_methods,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the URL is set."""
    for name in ("TRMON_PROJECT", "TRMON_RUN", "TRMON_MODE", "TRMON_RANK", "TRMON_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRMON_URL", "http://127.0.0.1:8642")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("math / qwen 3", "math-qwen-3"), (".a", "a"), (7, "7"), ("a" * 200, "a" * 128)],
)
def test_names_of_a_framework_become_names_of_trmon(name: object, expected: str) -> None:
    settings = run_settings("verl", config={}, project=name, run=name)
    assert (settings.project, settings.run) == (expected, expected)
    assert (settings.rank, settings.world_size) == (0, 1)


def test_variables_take_precedence_over_a_frameworks_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_PROJECT", "mine")
    assert run_settings("verl", config={}, project="verl", run="tiny").project == "mine"


def test_the_configuration_has_no_secrets_and_what_a_user_gives_stands_over_it() -> None:
    config = {"trainer": {"api_key": "abcdefgh", "proxy": "http://user:pass@host"}, "lr": 1.0, "seed": 3}
    found = run_settings("verl", config=config, project="verl", run="tiny").config
    assert found["trainer"] == {"api_key": "***", "proxy": "http://***@host"}
    given = described_config("verl", config, given={"lr": 2.0})
    assert (given["lr"], given["seed"], given["framework"]) == (2.0, 3, "verl unknown")


def test_enforce_is_observe_with_a_warning(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRMON_MODE", "enforce")
    modes = [run_settings("verl", config={}, project="verl", run="tiny").mode for _ in range(2)]
    assert modes == [Mode.OBSERVE, Mode.OBSERVE]
    assert capfd.readouterr().err.count("mode observe") == 1


@pytest.mark.parametrize(
    ("describe", "said"),
    [
        (lambda: {"config": {}, "project": "verl", "run": "__"}, "verl trains without trmon: run (TRMON_RUN)"),
        (lambda: {"config": {}["wandb_group"]}, "slime trains without trmon: 'wandb_group'"),
        (lambda: None, None),
    ],
    ids=["invalid settings", "an object that lacks a setting", "a process without a run"],
)
def test_without_settings_a_reason_is_said(describe: Any, said: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    framework = (said or "nobody").split()[0]
    assert [begin_monitor(framework, describe) for _ in range(2)] == [None, None]
    printed = capfd.readouterr().err
    assert printed.count(said) == 1 if said else printed == ""


def test_unreadable_batches_and_numbers_are_counted_and_training_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    monitor = begin_monitor("verl", lambda: {"config": {}, "project": "verl", "run": "tiny"})
    batch: dict[str, float] = {}
    report_batch(monitor, lambda: {"step": batch["step"]})
    report_numbers(monitor, 1, lambda: {"loss": batch["loss"]})
    assert sum(monitor.error_guard.losses.snapshot().values()) == 2
    assert capfd.readouterr().err.count("KeyError") == 1


def test_what_a_batch_lacks_is_left_out() -> None:
    names = {"mu": "rollout_logprobs", "old": "old_logprobs", "mask": "mask"}
    assert batch_arguments({"mu": None, "mask": [1], "other": 2}, names) == {"mask": [1]}


def test_without_a_monitor_nothing_is_computed() -> None:
    report_batch(None, lambda: pytest.fail("computed"))
    report_numbers(None, 1, lambda: pytest.fail("computed"))


class Trainer:
    """A trainer of another version than expected."""

    def compute_loss(self, model: str, inputs: str, extra: int = 0) -> str:
        """Return what it was given."""
        return f"{model} {inputs} {extra}"


@pytest.mark.parametrize(
    ("expected", "unfit"),
    [
        ({"compute_loss": ("model", "inputs")}, []),
        ({"compute_loss": ("model", "inputs", "extra")}, []),
        ({"compute_loss": ("inputs",)}, ["compute_loss(inputs)"]),
        ({"log": ("logs",), "compute_loss": ()}, ["log(logs)"]),
    ],
    ids=["first parameters", "all parameters", "other parameters", "no method"],
)
def test_methods_that_do_not_fit_are_named(expected: dict[str, tuple[str, ...]], unfit: list[str]) -> None:
    assert unfit_methods(Trainer(), expected) == unfit


def test_a_hook_wraps_the_method_of_one_object_only() -> None:
    trainer, other = Trainer(), Trainer()

    def hook(compute: Any, model: str, inputs: str, **kwargs: Any) -> str:
        return f"<{compute(model, inputs, **kwargs)}>"

    hook_method(trainer, "compute_loss", lambda *_: "replaced by the second hook")
    hook_method(trainer, "compute_loss", hook)
    assert trainer.compute_loss("pi", inputs="rows", extra=2) == "<pi rows 2>"
    assert other.compute_loss("pi", "rows") == "pi rows 0"


def test_a_class_that_does_not_fit_is_named_once_and_left_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    expected = {"compute_loss": ("self", "data"), "finish": ("self",)}
    assert [hook_fitting(owner, expected, {}, framework="verl") for owner in (Trainer, Trainer())] == [False, False]
    assert capfd.readouterr().err.count("Trainer of verl unknown lacks compute_loss(self, data), finish(self)") == 1
    assert Trainer().compute_loss("pi", "rows") == "pi rows 0"


def test_a_class_that_fits_is_wrapped_for_all_its_objects() -> None:
    kind = type("Trainer", (Trainer,), {})
    hooks = {"compute_loss": lambda compute, *given: f"<{compute(*given)}>"}
    assert hook_fitting(kind, {"compute_loss": ("self", "model")}, hooks, framework="verl")
    assert kind().compute_loss("pi", "rows") == "<pi rows 0>"
    assert Trainer().compute_loss("pi", "rows") == "pi rows 0"
