"""Methods of one object are wrapped where they take what the wrappers rely on."""

from __future__ import annotations

from typing import Any

import pytest

from trmon_client.integrations.framework_runs import hook_method, unfit_methods


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

    hook_method(trainer, "compute_loss", hook)
    assert trainer.compute_loss("pi", inputs="rows", extra=2) == "<pi rows 2>"
    assert other.compute_loss("pi", "rows") == "pi rows 0"


def test_a_second_hook_replaces_the_first() -> None:
    trainer = Trainer()
    for mark in "ab":
        hook_method(trainer, "compute_loss", lambda compute, *args, mark=mark: mark + compute(*args))
    assert trainer.compute_loss("pi", "rows") == "bpi rows 0"
