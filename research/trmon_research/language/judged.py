"""The stored runs judged by the service: their messages pass its ingest and its worker, over a database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trmon.domain.access import EVERYTHING
from trmon.domain.backtest.evaluation import HAS_FIRED, PolicyMaskRate, StoredHistory, backtest_run
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.severity import Severity
from trmon.store import Store
from trmon_research.collapse.markdown import number, table
from trmon_research.detection.recorded_run import messages_in
from trmon_research.detection.replay import replayed
from trmon_research.judgement.folded import CATALOGUE, FoldedRun
from trmon_research.judgement.lab_runs import judged_history
from trmon_research.language.foresight import WANTED as WANTED_OF_RISK
from trmon_research.language.foresight import Foretold, risk_figures
from trmon_research.language.stored import SPOOL, StoredRun, stored_runs, unpack
from trmon_research.language_like.faults import Truth
from trmon_research.language_like.judged import judgement_of
from trmon_research.language_like.scoring import RunScore, figure_counts, score_run

SHOWN = (
    "mismatch_prob_pearson",
    "mismatch_kl_k1",
    "mismatch_kl_k3",
    "mismatch_abs_log_ratio_mean",
    "mismatch_ratio_mean",
    "staleness_kl_k3",
    "entropy",
    "grad_norm",
)


WANTED = ("0", "1 of 10", "17 of 18", "0", "15 of 18", "", "", "", "0", "")
"""What is wanted of each figure of all 28 runs."""
SOON = 20


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A stored run, its values [rows] by signal, what the judge made of it, and the score of that.

    `raised` is the number of alerts that the service raised, `unlike` names those that a backtest of the rows has not,
    or has alone; `foretold` is what the risk of a collapse was.
    """

    stored: StoredRun
    values: dict[str, npt.NDArray[np.float64]]
    found: FoldedRun
    score: RunScore
    raised: int
    unlike: tuple[str, ...]
    foretold: Foretold


def judged_runs(*, sealed: bool) -> Iterator[JudgedRun]:
    """Yield the stored runs of one half, judged."""
    for stored in stored_runs(sealed=sealed):
        yield judged(stored)


def judged(stored: StoredRun) -> JudgedRun:
    """Return a stored run judged."""
    with tempfile.TemporaryDirectory() as folder:
        messages = list(messages_in(unpack(stored.plan.name, Path(folder)) / SPOOL))
    with replayed(messages) as (store, run_id):
        rows = store.run_log.batches_after(run_id, 0, limit=1_000_000)
        raised = _raised(store)
        history = StoredHistory(
            run=store.runs.by_id(run_id),
            rows=lambda: iter(rows),
            apply_policy=lambda policy: PolicyMaskRate(policy=policy.name),
            raised=lambda: raised,
        )
        found = judged_history(history)
        [outcome] = backtest_run(history, {"builtin": builtin_rules()}).outcomes
    values = {name: np.array([row.numbers.get(name, np.nan) for row in rows]) for name in SHOWN}
    score = score_run(stored.plan.name, truth(stored), judgement_of(found))
    return JudgedRun(stored, values, found, score, len(raised), outcome.unlike_live or (), _foretold(stored, rows))


def _foretold(stored: StoredRun, rows: Sequence[BatchRow]) -> Foretold:
    """Return the risk that the service stored with each step; that of the last attempt where one is repeated."""
    risk = np.full(max(row.key.step for row in rows) + 1, np.nan)
    for row in rows:
        risk[row.key.step] = row.numbers.get(RISK, np.nan)
    evaluated = {int(update): reward for update, reward in stored.facts["evaluated"].items()}
    fault = stored.plan.fault
    return Foretold(stored.plan.name, 0 if fault is None else fault.at, risk, evaluated)


def _raised(store: Store) -> set[tuple[str, int]]:
    """Return the rule and the step of each alert that fired in a database of one run."""
    alerts = (item.alert for item in store.alerts.list(access=EVERYTHING, limit=10_000).items)
    return {(alert.rule, alert.since_step) for alert in alerts if alert.state.value in HAS_FIRED}


def truth(stored: StoredRun) -> Truth | None:
    """Return what is wrong with a run, and since which row."""
    fault = stored.plan.fault
    return None if fault is None else Truth(fault.at, fault.at + fault.shows_within, tuple(sorted(fault.accept)))


def half_tables(halves: Mapping[str, Sequence[JudgedRun]]) -> Iterator[list[str]]:
    """Yield the tables of what is counted, a column a half: of the judgement, its messages, and the risk."""
    counts = [figure_counts(run.score for run in runs) for runs in halves.values()]
    rows = [[of[0][0], *(f"{count} of {n}" for _, count, n in of)] for of in zip(*counts, strict=True)]
    yield table(["figure", *halves, "wanted"], [[*row, goal] for row, goal in zip(rows, WANTED, strict=True)])
    messages = [message_figures(runs) for runs in halves.values()]
    yield table(["messages", *halves], [[name, *(of[name] for of in messages)] for name in messages[0]])
    figures = [risk_figures([run.foretold for run in runs]) for runs in halves.values()]
    rows = [[name, *(of[name] for of in figures)] for name in figures[0]]
    goals = zip(rows, WANTED_OF_RISK, strict=True)
    yield table(["risk of a collapse", *halves, "wanted"], [[*row, goal] for row, goal in goals])


def message_figures(runs: Sequence[JudgedRun]) -> dict[str, str]:
    """Return whom pages reached, and what of the harm was told before it came; a page is harm in a run that is hurt."""
    well = [run for run in runs if run.foretold.was_never_hurt]
    pages = [run.foretold for run in runs for one in run.found.told if one.severity is Severity.PAGE]
    onsets = [(run.found.told, onset) for run in runs if (onset := run.foretold.onset) is not None]

    def told_by(last: int, *, paged: bool) -> str:
        found = [
            any(one.row < onset + last for one in told if one.severity is Severity.PAGE or not paged)
            for told, onset in onsets
        ]
        return f"{sum(found)} of {len(onsets)}"

    paged = sum(any(one.severity is Severity.PAGE for one in run.found.told) for run in well)
    return {
        "never-hurt runs paged": f"{paged} of {len(well)}",
        "never-hurt runs paged or warned": f"{sum(bool(run.found.told) for run in well)} of {len(well)}",
        "pages that were harm": f"{sum(not run.was_never_hurt for run in pages)} of {len(pages)}",
        "collapses told before they began": told_by(0, paged=False),
        f"by {SOON} updates after": told_by(SOON + 1, paged=False),
        "collapses paged before they began": told_by(0, paged=True),
        f"paged by {SOON} updates after": told_by(SOON + 1, paged=True),
    }


def run_table(runs: Iterable[JudgedRun]) -> list[str]:
    """Return a table with a line for each run: what is wrong, the clean evaluation at its start and end, the judgement.

    And how many alerts the service raised, and whether a backtest raises the same.
    """
    of_judgement = ("told", "first cause", "in the end", "since", "last good", "remedy")
    header = ["run", "wrong", "reward", *of_judgement, "alerts", "backtest"]
    return table(header, [_row(run) for run in runs])


def _row(run: JudgedRun) -> list[str]:
    fault, score, found = run.stored.plan.fault, run.score, run.found
    wrong = "-" if fault is None else f"{fault.name} {fault.value:g} from {fault.at}"
    told = found.told[0].row if found.told and fault is None else score.told_row
    spell, good = found.illness, found.good
    since = None if spell is None else spell.onset
    remedy = "-" if spell is None else CATALOGUE.by_key[f"{spell.finding}.{spell.clause}"].remedy
    shown = [_known(told), _cause(score.first), _cause(score.last), _known(since), _known(good)]
    evaluated = list(run.stored.facts["evaluated"].values())
    reward = f"{evaluated[0]:.2f} to {evaluated[-1]:.2f}"
    backtest = ", ".join(run.unlike) or "same"
    return [run.stored.plan.name, wrong, reward, *shown, str(remedy), str(run.raised), backtest]


def _cause(name: str | None) -> str:
    return "-" if name is None else f"`{name}`"


def _known(number_: int | None) -> str:
    return "-" if number_ is None else str(number_)


def level_table(runs: Iterable[JudgedRun]) -> list[str]:
    """Return a table of the signals of agreement and training: medians before the fault, and from it on."""
    rows = []
    for run in runs:
        fault = run.stored.plan.fault
        at = len(next(iter(run.values.values()))) if fault is None else fault.at
        for part, what in ((slice(0, at), "before"), (slice(at, None), "after")):
            values = {name: values[part] for name, values in run.values.items()}
            if any(len(row) and np.isfinite(row).any() for row in values.values()):
                shown = [
                    number(float(np.nanmedian(row)), digits=4) if np.isfinite(row).any() else "-"
                    for row in values.values()
                ]
                rows.append([run.stored.plan.name if fault is None else f"{run.stored.plan.name}, {what}", *shown])
    return table(["run", *(f"`{name}`" for name in SHOWN)], rows)
