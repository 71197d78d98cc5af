"""The tool on signals of a run over its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import FromStep, RunName, ToStep, checked_run
from trmon.assistants.bounded import rounded
from trmon.domain.finding import JsonNumber
from trmon_client.api import Service, SignalBand
from trmon_client.core.signals.catalogue import SIGNALS

MAX_NAMES, MAX_LISTED = 8, 200


class ExtremeAnswer(ToolAnswer):
    """A value, and the last step of the row that has it."""

    value: JsonNumber
    step: int


class SignalAnswer(ToolAnswer):
    """A signal: `values` are the means of the rows, `lowest` and `highest` are of single steps."""

    unit: str
    meaning: str | None
    healthy: str | None
    values: list[JsonNumber]
    lowest: ExtremeAnswer | None
    highest: ExtremeAnswer | None


class SignalsAnswer(ToolAnswer):
    """Signals by step: row i is at `steps[i]`, the newest of the steps that it covers; null is unknown."""

    run: str
    steps: list[int]
    n_steps: int
    signals: dict[str, SignalAnswer]


class SignalNamesAnswer(ToolAnswer):
    """The names of a run's signals and of its trainer's own scalars."""

    run: str
    names: list[str]
    left_out: int | None


def list_signal_names_tool(
    service: Service,
    run: RunName,
    words: Annotated[str, Field(description="Words that a name must hold, such as kl or reward.", max_length=200)] = "",
) -> SignalNamesAnswer:
    """List the names of the signals that a run has, for read_signals; words narrow a long list. Signals of a pair begin
    with its name: mismatch (rollout engine against trainer at the same weights), staleness (old against new weights),
    total (both)."""
    name = checked_run(run)
    asked = words.casefold().split()
    names = [one for one in service.signal_names(name) if all(word in one.casefold() for word in asked)]
    return SignalNamesAnswer(run=name, names=names[:MAX_LISTED], left_out=max(len(names) - MAX_LISTED, 0) or None)


def read_signals_tool(
    service: Service,
    run: RunName,
    names: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=MAX_NAMES,
            description="Names of signals, such as reward_mean or total_kl_k3; list_signal_names lists them.",
        ),
    ],
    from_step: FromStep = None,
    to_step: ToStep = None,
    points: Annotated[int, Field(ge=1, le=200, description="The most rows; each averages several steps.")] = 24,
) -> SignalsAnswer:
    """Return the course of signals over a range of steps, downsampled, with their units. values[i] is the mean of a
    row of steps whose newest is steps[i]; lowest and highest are of single steps in their row; null is unknown."""
    name = checked_run(run)
    history = service.signals(name, names, (from_step, to_step), points=points)
    return SignalsAnswer(
        run=name,
        steps=history.step.tolist(),
        n_steps=int(history.count.sum()),
        signals={signal: _signal(signal, band, history.step) for signal, band in history.bands.items()},
    )


def _signal(name: str, band: SignalBand, steps: Any) -> SignalAnswer:
    spec = SIGNALS.get(name)
    return SignalAnswer(
        unit=spec.unit if spec else "as the trainer or the service sends it",
        meaning=spec.description if spec else None,
        healthy=(spec.healthy or None) if spec else None,
        values=_numbers(band.mean.tolist()),
        lowest=_extreme(band.min, steps, np.nanargmin),
        highest=_extreme(band.max, steps, np.nanargmax),
    )


def _extreme(values: Any, steps: Any, place_of: Any) -> ExtremeAnswer | None:
    if np.isnan(values).all():
        return None
    place = int(place_of(values))
    return ExtremeAnswer(value=rounded(float(values[place])), step=int(steps[place]))


def _numbers(values: Iterable[float]) -> list[JsonNumber]:
    return [rounded(value) for value in values]
