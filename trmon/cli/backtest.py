"""`trmon backtest`: what rules would have raised, and policies masked, over stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.cli.stored_runs import Address, Workers, find_stored_runs, map_runs, needs_package
from trmon.domain.model.errors import InvalidInput

if TYPE_CHECKING:
    from trmon.domain.backtest.backtest_run import RunBacktest
    from trmon.domain.backtest.stored_history import StoredHistory
    from trmon.domain.collapse_risk.risk_model import RiskModel
    from trmon.domain.rules.rule_set import RuleSet
    from trmon.store.stored_runs.run_source import RunSource
    from trmon.terminal.backtest.backtest_lines import BacktestWriter
    from trmon_client.core.policies.policy import Policy

BUILTIN = "builtin"


def backtest_command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A service's URL, a lake, or a folder of `trmon export` or `trmon lab sweep`; default: TRMON_URL.",
        ),
    ] = None,
    rules: Annotated[str, typer.Option(help="A rules file, or builtin.")] = BUILTIN,
    against: Annotated[str | None, typer.Option(help="Another rules file, or builtin, to compare with.")] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A preset, one with bounds such as trm_max(delta=0.02), or JSON; may be repeated."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A model of collapse in place of the shipped one, whose thresholds stay."
        ),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only the runs of this project of a service or a lake.")] = None,
    run: Annotated[
        list[str] | None, typer.Option(metavar="PROJECT/RUN", help="Only this run; may be repeated.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file for --json or --csv.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object per run, then the totals.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write a CSV row per alert.")] = False,
    workers: Workers = None,
    address: Address = None,
    max_false_pages: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if --rules page runs that do not collapse more often.")
    ] = None,
) -> None:
    """Print what rules would have raised over stored runs, how long before a collapse, and how often in vain.

    Exits with 1 if there are more false pages than --max-false-pages allows.
    """
    with plain_errors(), ExitStack() as stack:
        from trmon.domain.backtest.backtest_totals import BacktestSum
        from trmon.domain.collapse_risk.risk_model import decode_model
        from trmon.terminal.policy_argument import parse_policy_argument

        rule_sets = _rule_sets(rules, against)
        backtest = _Backtest(
            rule_sets,
            policies=[parse_policy_argument(text) for text in policy or ()],
            model=None if model is None else decode_model(model.read_bytes()),
        )
        writer = _writer(stack, list(rule_sets), output=output, as_json=as_json, as_csv=as_csv)
        summed = BacktestSum()
        progress = stack.enter_context(_progress())
        for source in sources or [""]:
            stored = _stored_runs(source, project=project, runs=run or [])
            results: Iterator[RunBacktest]
            if stored is not None:
                results = map_runs(stored, backtest.of_stored, workers=workers, address=address)
            elif workers is None and address is None:
                results = map(backtest.of_history, _histories(source, stack, project=project, runs=run or []))
            else:
                raise InvalidInput("SOURCE", "Ray reads lakes and folders of `trmon export` only")
            for found in results:
                progress(found.run)
                summed.add(found)
                writer.add(found)
        totals = summed.totals()
        if not totals.n_runs:
            raise InvalidInput("SOURCE", "has no runs")
        writer.finish(totals)
        if max_false_pages is not None and totals.rule_sets[0].n_false_pages > max_false_pages:
            raise typer.Exit(1)


def _rule_sets(rules: str, against: str | None) -> dict[str, RuleSet]:
    """Return the rule sets by what they were given as. Errors: InvalidInput."""
    from trmon.config.rule_files import read_rules_file
    from trmon.domain.rules.rule_set import RuleSet
    from trmon.domain.rules.rule_yaml import builtin_rules

    given = [rules] if against is None else [rules, against]
    if len(set(given)) < len(given):
        raise InvalidInput("--against", f"{against} is the same as --rules")
    return {name: RuleSet(builtin_rules() if name == BUILTIN else read_rules_file(Path(name))) for name in given}


def _writer(
    stack: ExitStack, rule_sets: Sequence[str], *, output: Path | None, as_json: bool, as_csv: bool
) -> BacktestWriter:
    from trmon.terminal.backtest.backtest_lines import CsvWriter, JsonLinesWriter
    from trmon.terminal.backtest.backtest_tables import BacktestTables

    if as_json and as_csv:
        raise InvalidInput("--csv", "and --json were both given; give one of them")
    if not (as_json or as_csv):
        if output is not None:
            raise InvalidInput("--output", "needs --json or --csv")
        return BacktestTables(console(), rule_sets=rule_sets)
    out = typer.get_text_stream("stdout") if output is None else stack.enter_context(output.open("w", newline=""))
    return JsonLinesWriter(out) if as_json else CsvWriter(out)


class _Backtest:
    """The backtest of any run, which may be sent to other processes."""

    def __init__(
        self, rule_sets: Mapping[str, RuleSet], *, policies: Sequence[Policy], model: RiskModel | None
    ) -> None:
        self._rule_sets = rule_sets
        self._policies = policies
        self._model = model

    def of_history(self, history: StoredHistory) -> RunBacktest:
        """Return the result for a history."""
        from trmon.domain.backtest.backtest_run import backtest_run

        return backtest_run(history, self._rule_sets, policies=self._policies, model=self._model)

    def of_stored(self, run: RunSource) -> RunBacktest:
        """Return the result for a run of a lake or an archive."""
        from trmon.store.stored_runs.run_source import backtest_history

        return self.of_history(backtest_history(run))


def _is_url(source: str) -> bool:
    return not source or source.startswith(("http://", "https://"))


def _stored_runs(source: str, *, project: str | None, runs: Sequence[str]) -> Sequence[RunSource] | None:
    return None if _is_url(source) else find_stored_runs(source, project=project, runs=runs)


def _histories(source: str, stack: ExitStack, *, project: str | None, runs: Sequence[str]) -> Iterator[StoredHistory]:
    """Yield the runs of a service or a sweep. Errors: InvalidInput for any other source; NotReady without pyarrow."""
    if _is_url(source):
        from trmon.terminal.backtest.service_history import service_histories

        service = stack.enter_context(service_of(source or None))
        yield from service_histories(service, project=project, runs=runs)
    elif any(Path(source).glob("*.parquet")):
        with needs_package("export"):
            import pyarrow  # noqa: F401
        from trmon.lab.sweep.swept_history import swept_histories

        yield from swept_histories(Path(source), runs=runs)
    else:
        raise InvalidInput(
            "SOURCE", f"{source} is neither a URL nor a lake nor a folder of `trmon export` or `trmon lab sweep`"
        )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the run that is read, on a terminal."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda _name: None
        return
    with terminal.status("") as status:
        yield lambda name: status.update(f"reading {name}")
