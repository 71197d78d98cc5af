"""The tool on the sequences of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import RunName, checked_run
from trmon.assistants.bounded import rounded
from trmon.domain.finding import JsonNumber
from trmon_client.api import SequencesInfo, Service
from trmon_client.core.column_schema import PAIRS, Pair

PAGE, MAX_READ = 1000, 20_000
STEMS = ("min_d", "max_d", "sum_k3")
OF_SEQUENCE = ("n_tokens", "argmax_abs_d", "reward", "advantage", "version_min", "n_invalid")
PAIR_ORDER: tuple[Pair, ...] = ("mismatch", "total", "staleness")
"""Which pair is read where none is asked for: the one that a diagnosis reads."""
ACTIVE = "active"
Order = Literal["divergence", "log_ratio", "low_reward", "length"]


class SequenceAnswer(ToolAnswer):
    """A sequence by its index in the batch; `rejected_because` is missing for one that stays in the loss."""

    index: int
    tokens: int
    kl_k3_nats_per_token: JsonNumber
    largest_log_ratio_nats: JsonNumber
    at_token: int | None
    rejected_because: str | None
    reward: JsonNumber
    advantage: JsonNumber
    weights_version: int | None
    invalid_tokens: int | None


class BoundAnswer(ToolAnswer):
    """A bound of the active policy."""

    statistic: str
    pair: str
    lower: JsonNumber
    upper: JsonNumber


class WorstSequencesAnswer(ToolAnswer):
    """The worst sequences of a step; `sequences_read` is below `sequences` where the batch is very large."""

    run: str
    step: int
    pair: str | None
    sequences: int
    sequences_read: int
    rejected: int
    rejected_by_reason: dict[str, int]
    policy: str | None
    bounds: list[BoundAnswer]
    worst: list[SequenceAnswer]


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
) -> WorstSequencesAnswer:
    """Return the worst sequences of a step: how far the two policies disagree on each, at which token, and why the
    active policy rejected it (rejected_because; missing if it stays in the loss). rejected counts all sequences of
    the step, bounds are those of the policy. No tokens or texts: they never leave the trainer."""
    name = checked_run(run)
    pages = list(_pages(service, name, step=step))
    columns = {column for page in pages for column in page.columns}
    chosen = pair or next((one for one in PAIR_ORDER if f"{one}_sum_k3" in columns), None)
    rows = [row for page in pages for row in _rows(page, pair=chosen)]
    # NaN compares with nothing: sequences without the value come last.
    ranked = sorted(rows, key=lambda row: _rank(ORDERS[by](row)))
    active = next((one for one in pages[0].decisions if one.role == ACTIVE), None)
    return WorstSequencesAnswer(
        run=name,
        step=step,
        pair=chosen,
        sequences=pages[0].n_sequences,
        sequences_read=len(rows),
        rejected=sum(row.reason is not None for row in rows),
        rejected_by_reason=_counts(row.reason for row in rows),
        policy=None if active is None else active.policy,
        bounds=[
            BoundAnswer(statistic=c.statistic, pair=c.pair, lower=rounded(c.lower), upper=rounded(c.upper))
            for c in pages[0].criteria
        ],
        worst=[_sequence(row) for row in ranked[:limit]],
    )


def _pages(service: Service, run: str, *, step: int) -> Iterator[SequencesInfo]:
    names = (*(f"{pair}_{stem}" for pair in PAIRS for stem in STEMS), *OF_SEQUENCE)
    first = 0
    while True:
        page = service.sequences(run, step, names, first=first, limit=PAGE)
        yield page
        first += PAGE
        if first >= min(page.n_sequences, MAX_READ):
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


def _rank(value: float) -> tuple[bool, float]:
    return (math.isnan(value), -value)


def _counts(reasons: Iterable[str | None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        if reason is not None:
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _sequence(row: SequenceRow) -> SequenceAnswer:
    place, version = row.of("argmax_abs_d", -1.0), row.of("version_min", -1.0)
    return SequenceAnswer(
        index=row.index,
        tokens=int(row.of("n_tokens")),
        kl_k3_nats_per_token=rounded(row.divergence),
        largest_log_ratio_nats=rounded(row.log_ratio),
        at_token=int(place) if place >= 0 else None,
        rejected_because=row.reason,
        reward=rounded(row.of("reward")),
        advantage=rounded(row.of("advantage")),
        weights_version=int(version) if version >= 0 else None,
        invalid_tokens=int(row.of("n_invalid", 0.0)) or None,
    )
