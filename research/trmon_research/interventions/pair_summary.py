"""The summary of an experiment: what each arm saved, and what it cost on runs that needed nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.table import Table

from trmon_research.interventions.arms import PLACEBO, UNTOUCHED
from trmon_research.interventions.pair_record import ArmRecord, PairRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRuns:
    """Of the runs that another arm loses, how many an arm does not."""

    saved: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One arm over all pairs.

    `lost` counts runs of configurations whose stored run collapsed, of which `triggered` reached the arms.
    `end_reward` is the mean over these, `healthy_rewards` the end reward of each healthy run over that of the
    untouched one, `mask_rate` the mean over all.
    """

    arm: str
    triggered: int
    lost: int
    saved_of_untouched: SavedRuns
    saved_of_placebo: SavedRuns
    end_reward: float
    healthy_rewards: tuple[float, ...]
    healthy_lost: int
    mask_rate: float


def summarise(records: Sequence[PairRecord]) -> list[ArmSummary]:
    """Return the summaries of all arms, in the order in which pairs name them."""
    names = dict.fromkeys(arm.arm for record in records for arm in record.arms)
    return [_summary(name, [record for record in records if record.arm(name) is not None]) for name in names]


def arms_table(summaries: Iterable[ArmSummary]) -> Table:
    """Return the summaries as a table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("arm")
    headers = ("runs", "lost", "saved of untouched's", "saved of placebo's", "end reward", "mask rate")
    for header in (*headers, "healthy runs", "their reward", "the worst", "lost"):
        table.add_column(header, justify="right")
    for each in summaries:
        table.add_row(
            each.arm,
            str(each.triggered),
            str(each.lost),
            _share(each.saved_of_untouched),
            _share(each.saved_of_placebo),
            f"{each.end_reward:.3f}" if each.triggered else "-",
            f"{each.mask_rate:.1%}",
            str(len(each.healthy_rewards)),
            f"{fmean(each.healthy_rewards) - 1:+.1%}" if each.healthy_rewards else "-",
            f"{min(each.healthy_rewards) - 1:+.1%}" if each.healthy_rewards else "-",
            str(each.healthy_lost),
        )
    return table


def trigger_line(records: Sequence[PairRecord]) -> str:
    """Return in a sentence how many collapses the trigger met in time, and how many healthy runs it stopped."""
    collapsing = [record for record in records if record.plan.collapses]
    healthy = [record for record in records if not record.plan.collapses]
    met = sum(bool(record.arms) for record in collapsing)
    false = sum(record.prefix.n_updates < record.plan.setup.healthy_at for record in healthy)
    return (
        f"The trigger fired in {met} of {len(collapsing)} runs that collapse, and in {false} of {len(healthy)} others "
        "before the update at which those are interrupted in any case."
    )


def _summary(name: str, records: list[PairRecord]) -> ArmSummary:
    collapsing = [record for record in records if record.plan.collapses]
    healthy = [record for record in records if not record.plan.collapses]
    arms, healthy_arms = _arms(collapsing, name), _arms(healthy, name)
    return ArmSummary(
        arm=name,
        triggered=len(collapsing),
        lost=sum(record.is_lost(arm) for record, arm in arms),
        saved_of_untouched=_saved(collapsing, name, reference=UNTOUCHED),
        saved_of_placebo=_saved(collapsing, name, reference=PLACEBO),
        end_reward=fmean(arm.end_reward for _, arm in arms) if arms else float("nan"),
        healthy_rewards=tuple(
            arm.end_reward / untouched.end_reward
            for record, arm in healthy_arms
            if (untouched := record.arm(UNTOUCHED)) is not None
        ),
        healthy_lost=sum(record.is_lost(arm) for record, arm in healthy_arms),
        mask_rate=fmean(arm.mask_rate for _, arm in (*arms, *healthy_arms)),
    )


def _arms(records: Iterable[PairRecord], name: str) -> list[tuple[PairRecord, ArmRecord]]:
    return [(record, arm) for record in records if (arm := record.arm(name)) is not None]


def _saved(records: Iterable[PairRecord], name: str, *, reference: str) -> SavedRuns:
    lost = [record for record in records if (other := record.arm(reference)) is not None and record.is_lost(other)]
    saved = sum(not record.is_lost(arm) for record, arm in _arms(lost, name))
    return SavedRuns(saved=saved, of=len(lost))


def _share(saved: SavedRuns) -> str:
    return f"{saved.saved} of {saved.of}"
