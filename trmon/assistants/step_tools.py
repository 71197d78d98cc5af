"""Tools on the steps of a run: signals, sequences, and what another policy would have rejected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from trmon.assistants.answers import Answer, FromStep, RunName, ToStep, bounded_name, checked_run, picked, rounded
from trmon.terminal.arguments import parse_policy_argument
from trmon_client.api import SequencesInfo, Service, SignalBand
from trmon_client.core.column_schema import PAIRS, Pair
from trmon_client.core.signals.catalogue import SIGNALS

MAX_NAMES, MAX_LISTED = 8, 200


def list_signal_names_tool(
    service: Service,
    run: RunName,
    words: Annotated[str, Field(description="Words that a name must hold, such as kl or reward.", max_length=200)] = "",
) -> Answer:
    """List the names of the signals that a run has, for read_signals; words narrow a long list. Signals of a pair begin
    with its name: mismatch (rollout engine against trainer at the same weights), staleness (old against new weights),
    total (both)."""
    name = checked_run(run)
    asked = words.casefold().split()
    names = [one for one in service.signal_names(name) if all(word in one.casefold() for word in asked)]
    return {"run": name, "names": names[:MAX_LISTED], "left_out": max(len(names) - MAX_LISTED, 0) or None}


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
) -> Answer:
    """Return the course of signals over a range of steps, downsampled, with their units. values[i] is the mean of a
    row of steps whose newest is steps[i]; lowest and highest are of single steps in their row; null is unknown."""
    name = checked_run(run)
    history = service.signals(name, names, (from_step, to_step), points=points)
    return {
        "run": name,
        "steps": history.step.tolist(),
        "n_steps": int(history.count.sum()),
        "signals": {signal: _signal(signal, band, history.step) for signal, band in history.bands.items()},
    }


def _signal(name: str, band: SignalBand, steps: Any) -> Answer:
    spec = SIGNALS.get(name)
    return {
        "unit": spec.unit if spec else "as the trainer or the service sends it",
        "meaning": spec.description if spec else None,
        "healthy": (spec.healthy or None) if spec else None,
        "values": [rounded(value) for value in band.mean.tolist()],
        "lowest": _extreme(band.min, steps, np.nanargmin),
        "highest": _extreme(band.max, steps, np.nanargmax),
    }


def _extreme(values: Any, steps: Any, place_of: Any) -> Answer | None:
    if np.isnan(values).all():
        return None
    place = int(place_of(values))
    return {"value": rounded(float(values[place])), "step": int(steps[place])}


PAGE, MAX_READ = 1000, 20_000
STEMS = ("min_d", "max_d", "sum_k3")
OF_SEQUENCE = ("n_tokens", "argmax_abs_d", "reward", "advantage", "version_min", "n_invalid")
PAIR_ORDER: tuple[Pair, ...] = ("mismatch", "total", "staleness")
"""Which pair is read where none is asked for: the one that a diagnosis reads."""
ACTIVE = "active"
Order = Literal["divergence", "log_ratio", "low_reward", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRow:
    """One sequence: its columns by name, of one pair by their stem, and why the active policy rejected it."""

    index: int
    columns: Mapping[str, float]
    reason: str | None

    def of(self, name: str, default: float = float("nan")) -> float:
        """Return a column, or the default where the trainer did not give it."""
        return self.columns.get(name, default)

    @property
    def divergence(self) -> float:
        """The KL per token in nats, by k3."""
        return self.of("sum_k3") / max(self.of("n_tokens"), 1.0)

    @property
    def log_ratio(self) -> float:
        """The log-ratio in nats that is farthest from 0."""
        return max(self.of("min_d"), self.of("max_d"), key=abs)


ORDERS: dict[Order, Callable[[SequenceRow], float]] = {
    "divergence": lambda row: row.divergence,
    "log_ratio": lambda row: abs(row.log_ratio),
    "low_reward": lambda row: -row.of("reward"),
    "length": lambda row: row.of("n_tokens"),
}


def worst_sequences_tool(
    service: Service,
    run: RunName,
    step: Annotated[int, Field(ge=0, description="The step; its reports are kept for a limited time.")],
    by: Annotated[Order, Field(description="What to sort by, the worst first.")] = "divergence",
    pair: Annotated[
        Pair | None, Field(description="The pair of policies to compare; by default mismatch, else total.")
    ] = None,
    limit: Annotated[int, Field(ge=1, le=50, description="The most sequences to return.")] = 10,
) -> Answer:
    """Return the worst sequences of a step: how far the two policies disagree on each, at which token, and why the
    active policy rejected it (rejected_because; missing if it stays in the loss). rejected counts all sequences of
    the step, bounds are those of the policy. No tokens or texts: they never leave the trainer."""
    name = checked_run(run)
    pages = list(_pages(service, name, step=step))
    columns = {column for page in pages for column in page.columns}
    chosen = pair or next((one for one in PAIR_ORDER if f"{one}_sum_k3" in columns), None)
    rows = [row for page in pages for row in _rows(page, pair=chosen)]
    # NaN compares with nothing: sequences without the value come last.
    order = ORDERS[by]
    ranked = sorted(rows, key=lambda row: (math.isnan(order(row)), -order(row)))
    active = next((one for one in pages[0].decisions if one.role == ACTIVE), None)
    return {
        "run": name,
        "step": step,
        "pair": chosen,
        "sequences": pages[0].n_sequences,
        "sequences_read": len(rows),
        "rejected": sum(row.reason is not None for row in rows),
        "rejected_by_reason": dict(Counter(row.reason for row in rows if row.reason is not None)),
        "policy": None if active is None else active.policy,
        "bounds": [picked(criterion, "statistic", "pair", "lower", "upper") for criterion in pages[0].criteria],
        "worst": [_sequence(row) for row in ranked[:limit]],
    }


def _pages(service: Service, run: str, *, step: int) -> Iterator[SequencesInfo]:
    names = (*(f"{pair}_{stem}" for pair in PAIRS for stem in STEMS), *OF_SEQUENCE)
    for first in range(0, MAX_READ, PAGE):
        page = service.sequences(run, step, names, first=first, limit=PAGE)
        yield page
        if first + PAGE >= page.n_sequences:
            return


def _rows(page: SequencesInfo, *, pair: Pair | None) -> Iterator[SequenceRow]:
    active = next((one for one in page.decisions if one.role == ACTIVE), None)
    sources = {stem: page.columns.get(f"{pair}_{stem}") for stem in STEMS}
    sources |= {name: page.columns.get(name) for name in OF_SEQUENCE}
    given = {name: values for name, values in sources.items() if values is not None}
    for place in range(len(page.columns.get("n_tokens", ()))):
        columns = {name: float(values[place]) for name, values in given.items()}
        rejected = active is not None and not active.accepted[place]
        reason = (active.reasons[place] or "unknown") if active is not None and rejected else None
        yield SequenceRow(index=page.first + place, columns=columns, reason=reason)


def _sequence(row: SequenceRow) -> Answer:
    place, version = row.of("argmax_abs_d", -1.0), row.of("version_min", -1.0)
    return {
        "index": row.index,
        "tokens": int(row.of("n_tokens")),
        "kl_k3_nats_per_token": rounded(row.divergence),
        "largest_log_ratio_nats": rounded(row.log_ratio),
        "at_token": int(place) if place >= 0 else None,
        "rejected_because": row.reason,
        "reward": rounded(row.of("reward")),
        "advantage": rounded(row.of("advantage")),
        "weights_version": int(version) if version >= 0 else None,
        "invalid_tokens": int(row.of("n_invalid", 0.0)) or None,
    }


MAX_UNDECIDED = 5


def what_if_policy_tool(
    service: Service,
    run: RunName,
    policy: Annotated[
        str,
        Field(
            max_length=4000,
            description="A preset such as geo_mask, a preset with bounds such as trm_max(delta=0.02), or a policy as "
            "JSON. A wrong name is answered with those that exist.",
        ),
    ],
    from_step: FromStep = None,
    to_step: ToStep = None,
    max_steps: Annotated[int, Field(ge=1, le=1000, description="The newest so many steps of the range.")] = 200,
) -> Answer:
    """Evaluate what another policy would have rejected of a run's stored sequences, beside what was rejected then.
    undecided counts sequences by the input that the policy lacks. It changes nothing."""
    name = checked_run(run)
    found = service.what_if(name, parse_policy_argument(policy).spec(), (from_step, to_step), max_steps=max_steps)
    return {
        "run": name,
        "policy": bounded_name(found.policy),
        **picked(found.range, "first_step", "last_step"),
        "steps": found.range.n_steps,
        "steps_without_reports": found.range.n_steps_without_reports or None,
        "sequences": found.total.n_sequences,
        "would_reject_fraction": rounded(found.total.mask_rate),
        "rejected_then_fraction": rounded(found.then.mask_rate),
        "of_positive_advantage_fraction": rounded(found.positive_advantage.mask_rate),
        "of_negative_advantage_fraction": rounded(found.negative_advantage.mask_rate),
        "rejected_by_reason": found.reasons,
        "by_length": [
            picked(one, shortest_tokens="shortest", longest_tokens="longest", rejected_fraction="mask_rate")
            for one in found.by_length
        ],
        "mean_weight": rounded(found.weights.mean) if found.weights else None,
        "undecided": dict(list(found.undecided.items())[:MAX_UNDECIDED]) or None,
    }
