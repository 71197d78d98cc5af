"""Common parts of the integrations: hooks on a framework's methods, and the run with its batches and scalars."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from numbers import Real
from types import ModuleType
from typing import Any

from trmon_client.config.run_config import plain_config
from trmon_client.config.settings import ClientSettings, Mode, OnIncident, resolve_settings
from trmon_client.core.arrays import is_tensor
from trmon_client.error_guard import WarnOnce
from trmon_client.monitor import Monitor

Hook = Callable[..., Any]
"""Takes the wrapped method, then its arguments; calls it once and returns what the caller gets."""
SUMMARY_OF_TRAINING = "train_runtime"
"""In what trainers of transformers log at their end of the whole training, which belongs to no step."""


def unfit_methods(owner: object, expected: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the methods that are absent, or whose first parameters have other names, as text for a warning.

    An override with `*args` or `**kwargs` passes on what it is called with: only the parameters that it names count.
    """
    return [
        f"{name}({', '.join(parameters)})"
        for name, parameters in expected.items()
        if not callable(method := getattr(owner, name, None)) or not _takes(method, parameters)
    ]


def _takes(method: Callable[..., Any], parameters: Sequence[str]) -> bool:
    try:
        given = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return False
    is_variadic = any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in given)
    names = [one.name for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    n_named = min(len(names), len(parameters)) if is_variadic else len(parameters)
    return names[:n_named] == [*parameters][:n_named]


def hook_method(owner: object, name: str, hook: Hook) -> None:
    """Let calls of one object's method go through `hook`, in place of an earlier hook; other objects keep theirs."""
    method = getattr(owner, name)
    original = getattr(method, "hooked_method", method)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    hooked.hooked_method = original  # type: ignore[attr-defined]
    setattr(owner, name, hooked)


def pausing_hook(monitor: Callable[[], Monitor | None], reason: str) -> Hook:
    """Return a hook that reports a pause before the method runs. Args: monitor: None outside of a run."""

    def pause(original: Hook, *args: Any, **kwargs: Any) -> Any:
        if (current := monitor()) is not None:
            current.pause(reason)
        return original(*args, **kwargs)

    return pause


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, "unknown" if it is not installed as one."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


warn_once = WarnOnce().warn
"""Prints a warning on stderr, once per process and key: (key, text)."""


def hook_fitting(
    owner: object, expected: Mapping[str, Sequence[str]], by_name: Mapping[str, Hook], *, framework: str
) -> bool:
    """Wrap the methods of an object, a class or a module and return True, or warn once of those that do not fit.

    Args: expected: the methods' first parameters by name. by_name: wrappers, of what is expected or more.
        framework: its distribution.
    """
    if unfit := unfit_methods(owner, expected):
        what = f"{_name_of(owner)} of {framework} {installed_version(framework)}"
        warn_once(what, f"{what} lacks {', '.join(unfit)}: trmon does not report from it")
        return False
    for name in expected.keys() & by_name.keys():
        hook_method(owner, name, by_name[name])
    return True


def _name_of(owner: object) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act` with a module as soon as it is imported, or at once if it is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AwaitedModule(name, act))


class _AwaitedModule(MetaPathFinder):
    """Finds nothing itself: it lets the module's own loader call `act` when it has run."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(self, fullname: str, *_where: object) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        if (spec := find_spec(fullname)) is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_act(module: ModuleType) -> None:
                run(module)
                self._act(module)

            spec.loader.exec_module = run_and_act  # type: ignore[method-assign]
        return spec


def begin_monitor(framework: str, describe: Callable[[], Mapping[str, Any] | None]) -> Monitor | None:
    """Return the monitor of a run, or None after a warning if its settings are invalid or cannot be read.

    Args: describe: reads the arguments of `run_settings` from the framework's objects; None: not this process.
    """
    try:
        given = describe()
        return None if given is None else Monitor(run_settings(framework, **given))
    except Exception as error:  # noqa: BLE001  the framework's objects may lack what `describe` reads
        warn_once(f"{framework} settings", f"{framework} trains without trmon: {error}")
        return None


def run_settings(
    framework: str,
    *,
    config: Any,
    project: Any = None,
    run: Any = None,
    rank: int = 0,
    world_size: int = 1,
    reports_checkpoints: bool = False,
    on_incident: OnIncident | None = None,
    acts: bool = True,
) -> ClientSettings:
    """Return the settings; TRMON_PROJECT and TRMON_RUN take precedence over the framework's names.

    Args: framework: its distribution. config: the framework's, a mapping or an object. rank, world_size:
        data-parallel; a driver is the only rank. acts: whether the monitor calls on_incident itself.
    Errors: ValueError naming the variable.
    """
    environment = os.environ
    names = {
        name: None if value is None or environment.get(f"TRMON_{name.upper()}") else as_name(value)
        for name, value in {"project": project, "run": run}.items()
    }
    given = {**names, "config": described_config(framework, config), "rank": rank, "world_size": world_size}
    settings = resolve_settings({**given, "on_incident": on_incident}, environment=environment)
    act = settings.on_incident if acts else None
    settings = replace(settings, reports_checkpoints=reports_checkpoints, on_incident=act)
    if settings.mode is Mode.ENFORCE:
        warn_once("enforce", f"trmon does not change the loss of {framework}: mode observe")
        settings = replace(settings, mode=Mode.OBSERVE)
    return settings


def described_config(framework: str, config: Any, *, given: Any = None) -> dict[str, Any]:
    """Return a run's configuration: the framework's without secrets, and over it what the user has given.

    Args: framework: its distribution. config, given: mappings or objects.
    """
    return {
        "framework": f"{framework} {installed_version(framework)}",
        **plain_config(config),
        **plain_config(given if given is not None else {}),
    }


def newest_step(trainer: Any) -> int:
    """Return the step of the newest batch of a Trainer, to which what it logs and saves after its update belongs."""
    return max(0, int(trainer.state.global_step) - 1)


def ids_like(ids: Any, mask: Any) -> Any | None:
    """Return the ids of the sampled tokens if they have the shape of the mask; None otherwise."""
    return ids if tuple(getattr(ids, "shape", ())) == tuple(mask.shape) else None


def report(monitor: Monitor | None, send: Callable[[Monitor], object]) -> None:
    """Let a function report to a monitor; no failure reaches the trainer. Args: monitor: None outside of a run."""
    if monitor is not None:
        monitor.error_guard.guard(lambda: send(monitor), otherwise=None)


def report_batch(monitor: Monitor | None, arguments: Callable[[], Mapping[str, Any] | None]) -> None:
    """Pass a batch to `log_batch`; no failure reaches the trainer. Args: arguments: computes them, None: no batch."""
    report(monitor, lambda known: _log_batch(known, arguments()))


def report_numbers(monitor: Monitor | None, step: int, values: Callable[[], Mapping[str, Any]]) -> None:
    """Pass numbers and scalar tensors among a framework's values to `log_scalars`; no failure reaches the trainer."""
    report(monitor, lambda known: _log_numbers(known, step, values()))


def report_checkpoint(monitor: Monitor | None, step: int, path: Callable[[], str], *, part: str = "") -> None:
    """Report a saved checkpoint; no failure reaches the trainer. Args: path: returns it; part: of `checkpoint`."""
    report(monitor, lambda known: known.checkpoint(step, path(), part=part))


def is_asked_to_save(monitor: Monitor | None) -> bool:
    """Whether the service asks the process that controls all ranks for a checkpoint, once an illness."""
    return monitor is not None and monitor.error_guard.guard(monitor.advice_cache.take_request, otherwise=False)


def batch_arguments(batch: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of a framework's batch under the names of `log_batch`; what is absent or None is left out."""
    return {argument: batch[name] for name, argument in names.items() if batch.get(name) is not None}


def _log_batch(monitor: Monitor, arguments: Mapping[str, Any] | None) -> None:
    if arguments is not None:
        monitor.log_batch(**arguments)


def _log_numbers(monitor: Monitor, step: int, values: Mapping[str, Any]) -> None:
    # A tensor is copied by the encoder's thread; taking its number here would wait for its device.
    numbers = {
        name: float(value) if isinstance(value, Real) else value for name, value in values.items() if _is_number(value)
    }
    if numbers:
        monitor.log_scalars(step, numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (is_tensor(value) and value.ndim == 0)


def as_name(value: Any) -> str:
    """Return a framework's name with "-" in place of the characters that names of trmon lack."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(value)).lstrip("._-")[:128]
