"""Report what a trainer logs with wandb or trackio; a run is judged by its scalars alone.

`follow()` before the trainer begins its run: the tracker does what it did, and trmon gets the same numbers.
`import trmon_client.integrations.trackers as wandb` stands in for either module where no tracker is wanted.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import partial
from numbers import Integral
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from trmon_client.config.run_config import plain_config
from trmon_client.findings_tracker import GAUGE
from trmon_client.integrations.framework_runs import (
    Hook,
    after_import,
    begin_monitor,
    hook_fitting,
    report,
    report_numbers,
    warn_once,
)
from trmon_client.monitor import Monitor

MODULES = {"wandb": "wandb.sdk.wandb_run", "trackio": "trackio.run"}
"""The module of each tracker's class `Run`."""
PARAMETERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "wandb": {"log": ("self", "data", "step"), "define_metric": ("self", "name", "step_metric"), "finish": ("self",)},
    "trackio": {"log": ("self", "metrics", "step"), "finish": ("self",)},
}
"""The methods of `Run` that are wrapped, with their first parameters."""


def follow(*trackers: str) -> None:
    """Report the runs that these trackers begin from now on in this process; by default those of all known trackers.

    Args: trackers: "wandb" or "trackio", imported or not.
    Errors: KeyError for any other; none in training.
    """
    for tracker in trackers or MODULES:
        after_import(MODULES[tracker], partial(_hook, tracker))


class Numbers:
    """The numbers of a tracker's run on their way to trmon, where the run begins with the first call.

    A call that names no step is of the step that the first of the run's step metrics has in it, else of the newest
    step. Without step metrics calls are counted, as trackers do; asking wandb for its step would wait for its process.
    """

    def __init__(self, tracker: str) -> None:
        self._tracker = tracker
        self._monitor: Monitor | None = None
        self._has_begun = False
        self._step_metrics: set[str] = set()
        self._step_metric: str | None = None
        self._newest: int | None = None
        self._next = 0

    def define(self, step_metric: str | None) -> None:
        """Add a metric that other metrics are drawn over."""
        if step_metric:
            self._step_metrics.add(step_metric)

    def log(self, run: Any, values: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        """Send the numbers of a call. Args: run: has `project`, `name` and `config`; commit: whether the step ends."""
        if not self._has_begun:
            self._has_begun = True
            self._monitor = begin_monitor(self._tracker, lambda: _description(run))
        report(self._monitor, lambda known: self._send(known, values, step, commit))

    def finish(self) -> None:
        """End the run: with the exception that is being handled, if there is one."""
        if self._monitor is not None:
            self._monitor.__exit__(*sys.exc_info())

    def _send(self, monitor: Monitor, values: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        numbers = {name: value for name, value in values.items() if not name.startswith(GAUGE)}
        at = step if step is not None else self._step_of(values)
        if at is not None and numbers:
            self._newest = int(at)
            self._next = self._newest + (step is None if commit is None else commit)
            report_numbers(monitor, self._newest, lambda: numbers)

    def _step_of(self, values: Mapping[str, Any]) -> int | None:
        if not self._step_metrics:
            return self._next
        if self._step_metric is None:
            found = (name for name in values if name in self._step_metrics and isinstance(values[name], Integral))
            self._step_metric = next(found, None)
        step: int | None = values.get(self._step_metric or "", self._newest)
        return step


def _description(run: Any) -> dict[str, Any]:
    config = {name: value for name, value in dict(run.config).items() if not str(name).startswith("_")}
    return {"config": config, "project": run.project, "run": run.name}


def _hook(tracker: str, module: ModuleType) -> None:
    followed: WeakKeyDictionary[Any, Numbers] = WeakKeyDictionary()

    def numbers_of(run: Any) -> Numbers:
        return followed.setdefault(run, Numbers(tracker))

    def log(original: Hook, run: Any, *args: Any, **kwargs: Any) -> Any:
        logged = original(run, *args, **kwargs)
        given = inspect.signature(original).bind(run, *args, **kwargs).arguments
        numbers_of(run).log(run, [*given.values()][1], given.get("step"), given.get("commit"))
        return logged

    def define_metric(original: Hook, run: Any, *args: Any, **kwargs: Any) -> Any:
        defined = original(run, *args, **kwargs)
        step_metric = inspect.signature(original).bind(run, *args, **kwargs).arguments.get("step_metric")
        numbers_of(run).define(getattr(step_metric, "name", step_metric))
        return defined

    def finish(original: Hook, run: Any, *args: Any, **kwargs: Any) -> Any:
        numbers_of(run).finish()
        return original(run, *args, **kwargs)

    hooks = {"log": log, "define_metric": define_metric, "finish": finish}
    hook_fitting(module.Run, PARAMETERS[tracker], hooks, framework=tracker)


class Run:
    """A run with those calls of wandb and trackio that trmon understands; trmon alone keeps it."""

    def __init__(self, project: str | None, name: str | None, config: Any) -> None:
        self.project, self.name, self.config = project, name, plain_config(config or {})
        self._numbers = Numbers("trmon-client")

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Report the numbers among the values. Args: commit: whether the step ends; by default if it is not given."""
        self._numbers.log(self, data, step, commit)

    def define_metric(self, _name: str, step_metric: str | None = None, **_: Any) -> None:
        """Let calls that name no step have that of a metric."""
        self._numbers.define(step_metric)

    def finish(self, *_: Any, **__: Any) -> None:
        """End the run."""
        self._numbers.finish()


run: Run | None = None
"""The run that `init` began."""


def init(project: str | None = None, name: str | None = None, *, config: Any = None, **_: Any) -> Run:
    """Begin a run, whose service is that of TRMON_URL; the other arguments of the trackers' `init` have no effect."""
    global run
    finish()
    run = Run(project, name, config)
    return run


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
    """Report the numbers among the values, of the run that `init` began."""
    if run is None:
        warn_once("log before init", "log() was called before init(): nothing is reported")
    else:
        run.log(data, step, commit)


def define_metric(name: str, step_metric: str | None = None, **_: Any) -> None:
    """Let calls that name no step have that of a metric."""
    if run is not None:
        run.define_metric(name, step_metric)


def finish(*_: Any, **__: Any) -> None:
    """End the run that `init` began."""
    global run
    ended, run = run, None
    if ended is not None:
        ended.finish()
