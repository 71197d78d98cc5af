"""Classes of actors, into which Ray copies the methods of their base classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trmon_client.integrations.verl.trainer_hooks import copied_methods

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
