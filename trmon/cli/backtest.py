"""`trmon backtest`: what rules would have raised, and policies masked, over stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.cli.stored_runs import Address, Workers, find_stored_runs, map_runs
from trmon.domain.backtest.evaluation import HAS_FIRED, PolicyMaskRate, StoredHistory, why_skipped
from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.runs.run import Run, RunState
from trmon_client.api import Service
from trmon_client.api.batches import BatchInfo
from trmon_client.api.runs import RunInfo
from trmon_client.core.policies.policy import Policy

if TYPE_CHECKING:
    from trmon.domain.backtest.evaluation import RunBacktest
    from trmon.domain.collapse_risk.risk_model import RiskModel
    from trmon.domain.rules.rule import RuleSet
    from trmon.store.archive.runs import RunSource
    from trmon.terminal.backtest_text import BacktestTables, JsonLinesWriter


BUILTIN = "builtin"
Rules = Annotated[str, typer.Option(help="A rules file, or builtin.")]
Against = Annotated[str | None, typer.Option(help="Another rules file, or builtin, to compare with.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(help="A preset, one with bounds such as trm_max(delta=0.02), or JSON; may be repeated."),
]
ModelFile = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="A model of collapse in place of the shipped one, whose thresholds stay."
    ),
]
Runs = Annotated[list[str] | None, typer.Option(metavar="PROJECT/RUN", help="Only this run; may be repeated.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The file for --json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write a JSON object per run, then the totals.")]


def backtest_command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A service's URL, a lake, or a folder of `trmon export`; default: TRMON_URL.",
        ),
    ] = None,
    rules: Rules = BUILTIN,
    against: Against = None,
    policy: Policies = None,
    model: ModelFile = None,
    project: Annotated[str | None, typer.Option(help="Only the runs of this project of a service or a lake.")] = None,
    run: Runs = None,
    output: Output = None,
    as_json: AsJson = False,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Print what rules would have raised over stored runs, how long before a collapse, and how often in vain."""
    with plain_errors(), ExitStack() as stack:
        backtest = Backtest.of(rules, against, policies=policy, model=model)
        writer = backtest_writer(stack, backtest, output=output, as_json=as_json)

        def results() -> Iterator[RunBacktest]:
            for source in sources or [""]:
                stored = stored_source(source, project=project, runs=run or [])
                if stored is not None:
                    yield from map_runs(stored, backtest.of_stored, workers=workers, address=address)
                elif workers is not None or address is not None:
                    raise InvalidInput("SOURCE", "Ray reads lakes and folders of `trmon export` only")
                else:
                    service = stack.enter_context(service_of(source or None))
                    yield from map(backtest.of_history, service_histories(service, project=project, runs=run or []))

        write_backtest(results(), writer)


def write_backtest(results: Iterable[RunBacktest], writer: BacktestTables | JsonLinesWriter) -> None:
    """Write the result of each run and the totals. Errors: InvalidInput without runs."""
    from trmon.domain.backtest.totals import BacktestSum

    summed = BacktestSum()
    with _progress() as progress:
        for found in results:
            progress(found.run)
            summed.add(found)
            writer.add(found)
    totals = summed.totals()
    if not totals.n_runs:
        raise InvalidInput("SOURCE", "has no runs")
    writer.finish(totals)


def _rule_sets(rules: str, against: str | None) -> dict[str, RuleSet]:
    """Return the rule sets by what they were given as. Errors: InvalidInput."""
    from trmon.config.rules import read_rules_file
    from trmon.domain.rules.rule_yaml import builtin_rules

    given = [rules] if against is None else [rules, against]
    if len(set(given)) < len(given):
        raise InvalidInput("--against", f"{against} is the same as --rules")
    return {name: builtin_rules() if name == BUILTIN else read_rules_file(Path(name)) for name in given}


def backtest_writer(
    stack: ExitStack, backtest: Backtest, *, output: Path | None, as_json: bool
) -> BacktestTables | JsonLinesWriter:
    """Return what writes the results: tables, or lines of JSON. Errors: InvalidInput."""
    from trmon.terminal.backtest_text import BacktestTables, JsonLinesWriter

    if as_json:
        return JsonLinesWriter(
            typer.get_text_stream("stdout") if output is None else stack.enter_context(output.open("w", newline=""))
        )
    if output is not None:
        raise InvalidInput("--output", "needs --json")
    return BacktestTables(console(), rule_sets=list(backtest.rule_sets))


@dataclass(frozen=True, slots=True)
class Backtest:
    """The backtest of any run, which may be sent to other processes."""

    rule_sets: Mapping[str, RuleSet]
    policies: Sequence[Policy]
    model: RiskModel | None

    @classmethod
    def of(cls, rules: str, against: str | None, *, policies: Sequence[str] | None, model: Path | None) -> Backtest:
        """Return the backtest of rule sets, policies and a model as they are written. Errors: InvalidInput."""
        from trmon.domain.collapse_risk.risk_model import decode_model
        from trmon.terminal.arguments import parse_policy_argument

        rule_sets = _rule_sets(rules, against)
        parsed = [parse_policy_argument(text) for text in policies or ()]
        return cls(rule_sets, parsed, None if model is None else decode_model(model.read_bytes()))

    def of_history(self, history: StoredHistory) -> RunBacktest:
        """Return the result for a history."""
        from trmon.domain.backtest.evaluation import backtest_run

        return backtest_run(history, self.rule_sets, policies=self.policies, model=self.model)

    def of_stored(self, run: RunSource) -> RunBacktest:
        """Return the result for a run of a lake or an archive."""
        from trmon.store.archive.runs import backtest_history

        return self.of_history(backtest_history(run))


def stored_source(source: str, *, project: str | None, runs: Sequence[str]) -> Sequence[RunSource] | None:
    """Return the runs of a lake or an archive; None for a service, by its URL or empty. Errors: InvalidInput."""
    from trmon.logs.source import is_url

    if not source or is_url(source):
        return None
    stored = find_stored_runs(source, project=project, runs=runs)
    if stored is None:
        raise InvalidInput("SOURCE", f"{source} is neither a URL nor a lake nor a folder of `trmon export`")
    return stored


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the run that is read, on a terminal."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda _name: None
        return
    with terminal.status("") as status:
        yield lambda name: status.update(f"reading {name}")


MAX_STEPS = 1_000_000
"""The most that a service applies a policy to."""


def service_histories(service: Service, *, project: str | None, runs: Sequence[str]) -> Iterator[StoredHistory]:
    """Yield the named runs (PROJECT/RUN), or without names all of a project or of the service.

    Errors: ServiceError.
    """
    found = (service.run(name) for name in runs) if runs else service.runs(project)
    for run in found:
        yield StoredHistory(
            run=_run(run),
            rows=partial(_rows, service, run.name),
            apply_policy=partial(_apply_policy, service, run.name),
            raised=partial(_raised, service, run.name),
        )


def _rows(service: Service, run: str) -> Iterator[BatchRow]:
    return map(_row, service.batches(run))


def _raised(service: Service, run: str) -> set[tuple[str, int]]:
    return {(alert.rule, alert.step) for alert in service.alerts(run=run) if alert.state in HAS_FIRED}


def _apply_policy(service: Service, run: str, policy: Policy) -> PolicyMaskRate:
    effect = service.what_if(run, policy.spec(), max_steps=MAX_STEPS)
    if not effect.total.n_sequences:
        return PolicyMaskRate(policy=policy.name, skipped=why_skipped(effect.undecided))
    return PolicyMaskRate(
        policy=policy.name,
        n_sequences=effect.total.n_sequences,
        mask_rate=float(effect.total.mask_rate),
        original_mask_rate=float(effect.then.mask_rate),
    )


def _run(info: RunInfo) -> Run:
    fields = msgspec.structs.asdict(info) | {
        "id": 1,
        "key": RunKey(info.project, info.run),
        "state": RunState(info.state),
        "attempt_id": None,
        "warnings": (),
    }
    return Run(**{name: fields[name] for name in Run.__dataclass_fields__ if name in fields})


def _row(info: BatchInfo) -> BatchRow:
    fields = msgspec.structs.asdict(info) | {
        "run_id": 1,
        "key": BatchKey(info.attempt_id, info.step, info.update),
        "complete": info.complete is not False,
        "unconfirmed": info.complete is None,
        # A row of scalars alone has no report: its counts are not known, and no mask is empty.
        "last_report_id": info.ordinal if info.n_sequences else 0,
        "signals": {name: float(value) for name, value in info.signals.items()},
        "scalars": {name: float(value) for name, value in info.scalars.items()},
        "quarantined": tuple(msgspec.convert(msgspec.to_builtins(part), Quarantined) for part in info.quarantined),
    }
    return BatchRow(**{name: fields[name] for name in BatchRow.__struct_fields__})
