"""Tools on the steps of a run: signals, sequences, and what another policy would have rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from trmon.assistants.answers import Answer, FromStep, RunName, ToStep, checked_run, shortened
from trmon.terminal.arguments import parse_policy_argument
from trmon_client.api import SequencesInfo, Service, SignalBand
from trmon_client.core.column_schema import PAIRS, Pair
from trmon_client.core.signals.catalogue import SIGNALS

MAX_LISTED = 200


def list_signal_names(
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
    return {"run": name, "names": [], **shortened({"names": names}, items=MAX_LISTED)}


def read_signals(
    service: Service,
    run: RunName,
    names: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=8,
            description="Names of signals, such as reward_mean or total_kl_k3; list_signal_names lists them.",
        ),
    ],
    from_step: FromStep = None,
    to_step: ToStep = None,
    points: Annotated[int, Field(ge=1, le=MAX_LISTED, description="The most rows; each averages several steps.")] = 24,
) -> Answer:
    """Return the course of signals over a range of steps, downsampled, with their units. values[i] is the mean of a
    row of steps whose newest is steps[i]; lowest and highest are of single steps in their row; null is unknown."""
    name = checked_run(run)
    history = service.signals(name, names, (from_step, to_step), points=points)
    signals = {signal: _signal(signal, band, history.step) for signal, band in history.bands.items()}
    answer = {"run": name, "steps": history.step, "n_steps": int(history.count.sum()), "signals": signals}
    return shortened(answer, items=MAX_LISTED)


def _signal(name: str, band: SignalBand, steps: Any) -> Answer:
    spec = SIGNALS.get(name)
    return {
        "unit": spec.unit if spec else "as the trainer or the service sends it",
        "meaning": spec and spec.description,
        "healthy": spec and spec.healthy,
        "values": band.mean,
        "lowest": _extreme(band.min, steps, np.nanargmin),
        "highest": _extreme(band.max, steps, np.nanargmax),
    }


def _extreme(values: Any, steps: Any, place_of: Any) -> Answer | None:
    if np.isnan(values).all():
        return None
    place = int(place_of(values))
    return {"value": float(values[place]), "step": int(steps[place])}


PAGE, MAX_READ = 1000, 20_000
STEMS = ("min_d", "max_d", "sum_k3")
COUNTS = {
    "tokens": "n_tokens",
    "at_token": "argmax_abs_d",
    "weights_version": "version_min",
    "invalid_tokens": "n_invalid",
}
VALUES = ("reward", "advantage")
PAIR_ORDER: tuple[Pair, ...] = ("mismatch", "total", "staleness")
"""Which pair is read where none is asked for: the one that a diagnosis reads."""
ACTIVE = "active"
Order = Literal["divergence", "log_ratio", "low_reward", "length"]


def worst_sequences(
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
    chosen = pair or next((one for one in PAIR_ORDER if f"{one}_sum_k3" in pages[0].columns), None)
    tokens = _column(pages, "n_tokens")
    lowest, highest, divergence = (_column(pages, f"{chosen}_{stem}") for stem in STEMS)
    values = {
        "kl_k3_nats_per_token": divergence / np.maximum(tokens, 1),
        "largest_log_ratio_nats": np.where(np.abs(lowest) >= np.abs(highest), lowest, highest),
        **{column: _column(pages, column) for column in VALUES},
    }
    counts = {field: _column(pages, column) for field, column in COUNTS.items()}
    order = {
        "divergence": -values["kl_k3_nats_per_token"],
        "log_ratio": -np.abs(values["largest_log_ratio_nats"]),
        "low_reward": values["reward"],
        "length": -tokens,
    }[by]
    rejections = [reason for page in pages for reason in _rejections(page)]
    reasons = Counter(reason for reason in rejections if reason is not None)
    worst = [
        {"index": place}
        | {field: int(column[place]) if column[place] >= 0 else None for field, column in counts.items()}
        | {field: float(column[place]) for field, column in values.items()}
        | {"rejected_because": rejections[place]}
        # NaN is sorted last.
        for place in np.argsort(order, kind="stable")[:limit].tolist()
    ]
    answer = {
        "run": name,
        "step": step,
        "pair": chosen,
        "sequences": pages[0].n_sequences,
        "sequences_read": len(rejections),
        "rejected": reasons.total(),
        "rejected_by_reason": reasons,
        "policy": next((one.policy for one in pages[0].decisions if one.role == ACTIVE), None),
        "bounds": pages[0].criteria,
        "worst": worst,
    }
    return shortened(answer, "bounds.values", items=50)


def _pages(service: Service, run: str, *, step: int) -> Iterator[SequencesInfo]:
    names = (*(f"{pair}_{stem}" for pair in PAIRS for stem in STEMS), *COUNTS.values(), *VALUES)
    for first in range(0, MAX_READ, PAGE):
        page = service.sequences(run, step, names, first=first, limit=PAGE)
        yield page
        if first + PAGE >= page.n_sequences:
            return


def _column(pages: Sequence[SequencesInfo], name: str) -> Any:
    """Return a column, float64 [sequences], NaN where the trainer did not give it."""
    return np.concatenate(
        [page.columns.get(name, np.full(len(page.columns["n_tokens"]), np.nan)) for page in pages], dtype=np.float64
    )


def _rejections(page: SequencesInfo) -> list[str | None]:
    """Return why the active policy rejected each sequence, None where it stays in the loss."""
    active = next((one for one in page.decisions if one.role == ACTIVE), None)
    if active is None:
        return [None] * len(page.columns["n_tokens"])
    return [
        None if accepted else reason or "unknown"
        for accepted, reason in zip(active.accepted, active.reasons, strict=True)
    ]


def what_if_policy(
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
    """Evaluate what another policy would have rejected of a run's stored sequences (total), beside what was rejected
    then. undecided counts sequences by the input that the policy lacks. It changes nothing."""
    name = checked_run(run)
    found = service.what_if(name, parse_policy_argument(policy).spec(), (from_step, to_step), max_steps=max_steps)
    return {"run": name, **shortened(found, "hash")}
