"""`trmon risk`: calibrate the risk of a collapse on a fleet's own ended runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trmon.cli.backtest import service_histories, stored_source
from trmon.cli.command import plain_errors
from trmon.cli.running_service import service_of

if TYPE_CHECKING:
    from trmon.domain.backtest.evaluation import StoredHistory
    from trmon.domain.collapse_risk.fleet_calibration import RiskCourse

risk = typer.Typer(no_args_is_help=True, help="Calibrate the risk of a collapse on your own runs.")


@risk.callback()
def _group() -> None:
    """Keep the name of the only command."""


@risk.command("calibrate")
def calibrate_risk(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE]...", help="A service's URL, a lake, or a folder of `trmon export`."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only the runs of this project.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model to write.")] = Path("risk-model.json"),
) -> None:
    """Fit the risk of a collapse and its thresholds to at least 40 ended runs, and write the model to serve with.

    TRMON_RISK_MODEL is its path.
    """
    from trmon.domain.collapse_risk.fleet_calibration import calibrate
    from trmon.domain.collapse_risk.risk_model import shipped_model

    with plain_errors(), ExitStack() as stack:
        courses = [course for one in _histories(sources, project, stack) if (course := _course(one)) is not None]
        model = calibrate(shipped_model(), courses)
        output.write_bytes(msgspec.json.encode(model.file))
        fleet = model.file.fleet
        assert fleet is not None
        found = sum(model.of_risk(one.highest) > model.file.warn_at for one in courses if one.onset is not None)
        typer.echo(f"{fleet.runs} ended runs, {fleet.collapses} collapsed; the model before: the share of moments that")
        typer.echo("a collapse followed within 200 steps, with its 90% interval")
        for at, *share in list(zip(fleet.risk, fleet.probability, fleet.low, fleet.high, strict=True))[::7]:
            typer.echo("{:>6.1%}: {:>6.1%} ({:.1%} to {:.1%})".format(at, *share))
        typer.echo(f"warns at {model.file.warn_at:.1%}: {found} of {fleet.collapses} collapses before they began")
        typer.echo(f"wrote {output}; start the service with TRMON_RISK_MODEL={output}")


def _histories(sources: list[str] | None, project: str | None, stack: ExitStack) -> Iterator[StoredHistory]:
    """Yield the runs of services, lakes and archives."""
    for source in sources or [""]:
        stored = stored_source(source, project=project, runs=[])
        if stored is None:
            yield from service_histories(stack.enter_context(service_of(source or None)), project=project, runs=[])
            continue
        from trmon.store.archive.runs import backtest_history

        yield from map(backtest_history, stored)


def _course(history: StoredHistory) -> RiskCourse | None:
    """Return the course of a run; None where it has not ended, or it is not known whether it collapsed."""
    from trmon.domain.backtest.evaluation import OnsetSearch, OnsetSource
    from trmon.domain.backtest.rule_replay import RuleReplay
    from trmon.domain.collapse_risk.fleet_calibration import RiskCourse
    from trmon.domain.collapse_risk.risk_reading import RISK
    from trmon.domain.findings.catalogue import Catalogue
    from trmon.domain.rules.rule import RuleSet

    if not history.run.state.ended:
        return None
    replay, search, risks = RuleReplay(RuleSet((), Catalogue((), {})), history.run), OnsetSearch(), dict[int, float]()
    for row in history.rows():
        closing = replay.add(row)
        search.add(closing)
        if closing.folded and closing.is_gauge:
            risks[row.key.step] = closing.row.signals.get(RISK, math.nan)
    onset = search.onset()
    if onset.source is OnsetSource.UNKNOWN or search.is_open:
        return None
    before = {step: value for step, value in risks.items() if onset.step is None or step < onset.step}
    return RiskCourse(tuple(before), tuple(before.values()), onset.step)
