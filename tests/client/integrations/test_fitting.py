"""A class, an object or a module of another version is named once, and left as it is."""

from __future__ import annotations

from typing import Any

import pytest

from trmon_client.integrations.framework_runs import hook_fitting


class Tracking:
    """A logger of another version than expected."""

    def log(self, data: str, step: int) -> str:
        """Return what it was given."""
        return f"{data} {step}"


def hook(log: Any, tracking: Tracking, *args: Any) -> str:
    """Mark what the wrapped method returns."""
    return f"<{log(tracking, *args)}>"


def test_a_class_that_does_not_fit_is_named_once_and_left_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    expected = {"log": ("self", "metrics"), "finish": ("self",)}
    assert [hook_fitting(owner, expected, {}, framework="verl") for owner in (Tracking, Tracking())] == [False, False]
    assert capfd.readouterr().err.count("Tracking of verl unknown lacks log(self, metrics), finish(self)") == 1
    assert Tracking().log("loss", 1) == "loss 1"


def test_a_class_that_fits_is_wrapped_for_all_its_objects() -> None:
    kind = type("Tracking", (Tracking,), {})
    assert hook_fitting(kind, {"log": ("self", "data", "step")}, {"log": hook}, framework="verl")
    assert kind().log("loss", 1) == "<loss 1>"
    assert Tracking().log("loss", 1) == "loss 1"
