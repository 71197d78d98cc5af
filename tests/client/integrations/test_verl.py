"""The plugin of verl, free of cost where no run is reported, and classes of actors, into which Ray copies methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomllib

from tests.fixtures.command import run_python
from trmon_client.integrations.verl.hooks import copied_methods

CLIENT = Path(__file__).parents[3] / "client"
HEAVY = {"numpy", "torch", "urllib3", "msgspec", "trmon_client.monitor"}


def test_the_package_announces_the_plugin_to_verl() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert find_spec(project["entry-points"]["verl.plugins"]["trmon"]) is not None


WITHOUT_URL = """
import os, sys
for name in [name for name in os.environ if name.startswith("TRMON_")]:
    del os.environ[name]
for environment in ({}, {"TRMON_URL": ""}, {"TRMON_URL": "http://h", "TRMON_MODE": "off"}):
    os.environ.update(environment)
    sys.modules.pop("trmon_client.integrations.verl.plugin", None)
    import trmon_client.integrations.verl.plugin
print(*sys.modules)
"""


def test_without_a_url_nothing_is_imported() -> None:
    imported = {*run_python(WITHOUT_URL).stdout.split()}
    assert "trmon_client.integrations.verl.plugin" in imported
    assert not HEAVY & imported


UPDATE = {"_update_actor": ("self", "batch")}


class Trainer:
    """Stands for verl's base class."""

    def _update_actor(self, batch: Any) -> Any:
        return batch


class Separate(Trainer):
    """Inherits the method."""


class Overriding(Trainer):
    """Has a method of its own, which calls that of its base."""

    def _update_actor(self, batch: Any) -> Any:
        return super()._update_actor(batch)


def traced(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method as `ray.util.tracing` does."""

    @functools.wraps(method)
    def resumed(self: Any, *args: Any, _ray_trace_ctx: Any = None, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    return resumed


class Actor(Separate):
    """The class of an actor."""

    _update_actor = traced(Separate._update_actor)


class OverridingActor(Overriding):
    """The class of an actor whose method calls that of its base."""

    _update_actor = traced(Overriding._update_actor)


def test_only_copies_of_the_method_itself_are_wrapped_too() -> None:
    assert [*copied_methods(Trainer, UPDATE)] == [(Actor, UPDATE)]
    assert [*copied_methods(Trainer, {"_validate": ("self",)})] == []
