"""Report a run's life and its scalars: verl's trainers make a `Tracking`, log their numbers to it and finish it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from trmon_client.integrations.framework_runs import Hook, begin_monitor, hook_fitting, report_numbers
from trmon_client.integrations.verl.trainer_hooks import TrainerHooks
from trmon_client.monitor import Monitor


class TrackingHooks:
    """The wrappers of `Tracking`: they raise what the wrapped methods raise, and nothing else.

    A run begins with each `Tracking`, which trainers make in one process; its batches arrive where it has rollouts.
    """

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "__init__": ("self", "project_name", "experiment_name", "default_backend", "config"),
        "log": ("self", "data", "step"),
        "finish": ("self", "exit_code"),
    }

    def __init__(self) -> None:
        self._trainers = TrainerHooks()

    def hook(self) -> None:
        """Wrap the methods of `Tracking`."""
        tracking = import_module("verl.utils.tracking").Tracking
        hooks = {"__init__": self._begin, "log": self._log, "finish": self._finish}
        hook_fitting(tracking, self.PARAMETERS, hooks, framework="verl")

    def _begin(self, initialize: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        initialize(tracking, *args, **kwargs)
        given = inspect.signature(initialize).bind(tracking, *args, **kwargs).arguments
        config = given.get("config") or {}
        has_rollouts = isinstance(config, Mapping) and "actor_rollout_ref" in config
        monitor = begin_monitor(
            "verl",
            lambda: {
                "config": config,
                "project": given["project_name"],
                "run": given["experiment_name"],
                # The fully asynchronous trainer saves in a method of its own.
                "reports_checkpoints": has_rollouts and "async_training" not in config,
            },
        )
        if monitor is not None:
            tracking.trmon_monitor = monitor
            if has_rollouts:
                self._trainers.begin(monitor)

    def _log(self, log: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        log(tracking, *args, **kwargs)
        if (monitor := _monitor_of(tracking)) is not None:
            given = inspect.signature(log).bind(tracking, *args, **kwargs).arguments
            report_numbers(monitor, given["step"], lambda: given["data"])

    def _finish(self, finish: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        # Without a code it is the finalizer, which also runs after a crash: the exit hook of the process knows more.
        monitor = _monitor_of(tracking) if args or kwargs else None
        if monitor is not None:
            monitor.__exit__(*sys.exc_info())
        finish(tracking, *args, **kwargs)


def _monitor_of(tracking: Any) -> Monitor | None:
    monitor = getattr(tracking, "trmon_monitor", None)
    return monitor if isinstance(monitor, Monitor) else None
