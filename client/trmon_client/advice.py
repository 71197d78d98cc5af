"""Opt-in advice that the service gives rank 0: scale the learning rate of the trainer's optimizer, or stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from trmon_client.batch_decision import BatchDecision
from trmon_client.config.settings import initialized_distributed
from trmon_client.error_guard import ErrorGuard

if TYPE_CHECKING:
    from trmon_client.monitor import Monitor

DECAY = "trmon_lr_decay"
DECAYED_AT = "trmon_lr_decayed_at"
"""Keys of the optimizer's parameter groups that hold lasting cuts, so that its checkpoints contain them."""

DECAY_EVERY_STEPS = 100


def scale_lr(optimizer: Any, decision: BatchDecision, *, process_group: Any = None) -> float:
    """Scale the learning rate of the optimizer's next steps as advised; call it on every rank, before the step.

    The rate is scaled only inside `optimizer.step()`: schedulers and logs see the trainer's own. A lasting cut is made
    once and stored in the optimizer's state. Under torch.distributed the group's first rank decides and broadcasts
    three numbers, which synchronises with the device if the group has no CPU backend; all ranks of the group must call.
    Args: optimizer: of torch; process_group: by default all ranks.
    Returns: the factor in force, 1 without advice. Never raises: failures are counted, and past cuts stay.
    Source: formulas, section 8.
    """
    guard = decision.error_guard.guard
    # Each part is guarded alone: a rank that failed before the broadcast would leave the others waiting in it.
    kept = guard(lambda: _stored_scale(optimizer), otherwise=NEUTRAL)
    wanted = guard(lambda: _advised_scale(kept, optimizer, decision.advice), otherwise=kept)
    numbers = [wanted.factor, wanted.decay, wanted.decayed_at]
    agreed = guard(lambda: _Scale(*_broadcast(numbers, optimizer, process_group)), otherwise=kept)
    return guard(lambda: _apply(optimizer, agreed), otherwise=1.0)


def should_stop(decision: BatchDecision, *, process_group: Any = None) -> bool:
    """Return whether the run should end now, the same on every rank; call it on every rank.

    The service advises it for runs with `stop_on_collapse` in their `config`, while the reward has collapsed or the
    trainer's numbers are NaN. Under torch.distributed the group's first rank decides and broadcasts one number.
    Args: process_group: of torch; by default all ranks.
    Returns: False without advice. Never raises: failures are counted.
    """
    guard = decision.error_guard.guard
    wanted = guard(lambda: decision.advice is not None and decision.advice.should_stop, otherwise=False)
    return guard(lambda: bool(_broadcast([float(wanted)], None, process_group)[0]), otherwise=False)


@dataclass(frozen=True)
class StepRequests:
    """What is asked of a trainer at a step: a checkpoint, and to look at an incident, None without news of one."""

    save_checkpoint: bool = False
    incident: Mapping[str, Any] | None = None


def requests_at_step(monitor: Monitor | None, *, process_group: Any = None) -> StepRequests:
    """Return what is asked of the trainer since the last call, the same on every rank; call it on every rank.

    A checkpoint is asked for once an illness, at its first warning, of monitors with `checkpoint_on_warning=True`. An
    incident is returned when it opens, and again if it becomes a page. Under torch.distributed the group's first rank
    decides and broadcasts two numbers, which synchronises with the device if the group has no CPU backend.
    Args: monitor: None on ranks that do not report; process_group: of torch; by default all ranks.
    Returns: no request without advice. Never raises: failures are counted.
    """
    guard = (ErrorGuard() if monitor is None else monitor.error_guard).guard
    wanted = guard(lambda: _taken(monitor), otherwise=StepRequests())
    flags = [float(wanted.save_checkpoint), float(wanted.incident is not None)]
    saves, has_news = guard(lambda: _broadcast(flags, None, process_group), otherwise=[0.0, 0.0])
    incident = None
    if has_news:
        incident = guard(lambda: _broadcast_object(wanted.incident, process_group), otherwise=None)
    return StepRequests(save_checkpoint=bool(saves), incident=incident)


def _taken(monitor: Monitor | None) -> StepRequests:
    if monitor is None:
        return StepRequests()
    cache = monitor.advice_cache
    return StepRequests(save_checkpoint=cache.take_request(), incident=cache.take_incident())


@dataclass(frozen=True)
class _Scale:
    """The factor for the next steps, the product of all lasting cuts, and the step of the newest, or -1."""

    factor: float
    decay: float
    decayed_at: float


NEUTRAL = _Scale(1.0, 1.0, -1.0)


class _Scaler:
    """Scales the learning rates of one optimizer during its steps."""

    def __init__(self, optimizer: Any) -> None:
        self.factor = 1.0
        self._rates: list[Any] | None = None
        optimizer.register_step_pre_hook(self._scale_rates)
        optimizer.register_step_post_hook(self._restore_rates)

    def _scale_rates(self, optimizer: Any, *_: Any) -> None:
        # A step that raised has not restored the rates.
        self._restore_rates(optimizer)
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.factor

    def _restore_rates(self, optimizer: Any, *_: Any) -> None:
        if self._rates is not None:
            for group, rate in zip(optimizer.param_groups, self._rates, strict=False):
                group["lr"] = rate
            self._rates = None


_SCALERS: WeakKeyDictionary[Any, _Scaler] = WeakKeyDictionary()


def _stored_scale(optimizer: Any) -> _Scale:
    group = optimizer.param_groups[0]
    return _Scale(1.0, float(group.get(DECAY, 1.0)), float(group.get(DECAYED_AT, -1.0)))


def _advised_scale(kept: _Scale, optimizer: Any, advice: Mapping[str, Any] | None) -> _Scale:
    if advice is None:
        return kept
    import torch

    is_plain = isinstance(optimizer, torch.optim.SGD)
    factor = _factor(advice["lr_scale_sgd" if is_plain else "lr_scale"])
    cut = advice.get("lr_decay")
    if cut is not None and (kept.decayed_at < 0 or cut["step"] - kept.decayed_at >= DECAY_EVERY_STEPS):
        return _Scale(factor, kept.decay * _factor(cut["factor"]), float(cut["step"]))
    return replace(kept, factor=factor)


def _factor(value: Any) -> float:
    """Return a factor of advice, which may only lower a rate. Errors: ValueError."""
    factor = float(value)
    if not 0 < factor <= 1 or math.isnan(factor):
        raise ValueError(f"a scale of the learning rate must be above 0 and at most 1, and is {factor}")
    return factor


def _broadcast(wanted: list[float], optimizer: Any, process_group: Any) -> list[float]:
    """Return the numbers of the group's first rank."""
    if (distributed := initialized_distributed()) is None:
        return wanted
    import torch

    device, first = _device_and_first_rank(distributed, optimizer, process_group)
    numbers = torch.tensor(wanted, dtype=torch.float64, device=device)
    distributed.broadcast(numbers, src=first, group=process_group)
    agreed: list[float] = numbers.tolist()
    return agreed


def _broadcast_object(value: Any, process_group: Any) -> Any:
    """Return the value of the group's first rank, of plain types."""
    if (distributed := initialized_distributed()) is None:
        return value
    values, (device, first) = [value], _device_and_first_rank(distributed, None, process_group)
    distributed.broadcast_object_list(values, src=first, group=process_group, device=device)
    return values[0]


def _device_and_first_rank(distributed: Any, optimizer: Any, process_group: Any) -> tuple[Any, int]:
    """Return a device that every rank of the group can use, and the group's first rank.

    An optimizer may have no parameters on this rank.
    """
    import torch

    group = distributed.group.WORLD if process_group is None else process_group
    first = 0 if process_group is None else distributed.get_global_rank(process_group, 0)
    backends = [device.type for device in group._device_types]
    if "cpu" in backends or not backends:
        return torch.device("cpu"), first
    groups = getattr(optimizer, "param_groups", ())
    devices = (parameter.device for group in groups for parameter in group.get("params", ()))
    return next((device for device in devices if device.type in backends), torch.device(backends[0])), first


def _apply(optimizer: Any, scale: _Scale) -> float:
    if optimizer not in _SCALERS:
        _SCALERS[optimizer] = _Scaler(optimizer)
    if scale.decayed_at >= 0:
        for group in optimizer.param_groups:
            group[DECAY], group[DECAYED_AT] = scale.decay, scale.decayed_at
    factor = scale.factor * scale.decay
    _SCALERS[optimizer].factor = factor
    return factor
