"""`trmon whatif`: evaluate other policies over stored sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.cli.stored_runs import Address, Workers, find_stored_runs, map_runs
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.terminal.arguments import parse_policy_argument
from trmon.terminal.text import print_lines, print_rows
from trmon_client.api.answers import encode_answer
from trmon_client.api.policies import RangeInfo, ShareInfo, WhatIfInfo

if TYPE_CHECKING:
    from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect
    from trmon.store.archive.runs import RunSource, WhatIfSteps
    from trmon_client.core.policies.policy import Policy


HEADS = ("policy", "sequences", "masked", "then", "advantage > 0", "advantage < 0", "by length, in quarters")


def print_whatif(found: Sequence[WhatIfInfo], console: Console) -> None:
    """Print what each policy would have masked, what was masked, and why."""
    print_lines(console, [_range(found[0].range)])
    print_rows(console, HEADS, map(_cells, found))
    print_lines(console, (line for effect in found for line in _lines(effect)))


def _cells(effect: WhatIfInfo) -> Sequence[str]:
    shares = (effect.total, effect.then, effect.positive_advantage, effect.negative_advantage)
    quarters = " ".join(_percent(quarter) for quarter in effect.by_length)
    return (effect.policy, f"{effect.total.n_sequences:,}", *map(_percent, shares), quarters)


def _range(reached: RangeInfo) -> str:
    missing = reached.n_steps_without_reports
    pruned = f"; of {missing:,} more the sequences are no longer stored" if missing else ""
    if reached.first_step is None:
        return f"no stored step{pruned}"
    return f"steps {reached.first_step} to {reached.last_step}, {reached.n_steps:,} of them{pruned}"


def _percent(share: ShareInfo) -> str:
    return f"{share.mask_rate:.2%}" if share.n_sequences else "-"


def _lines(effect: WhatIfInfo) -> Iterator[str]:
    if effect.weights is not None:
        mean, effective = effect.weights.mean, effect.weights.effective_share
        shown = f"mean weight {mean:.2%}, effective share {effective:.2%}"
        yield f"{effect.policy} is soft: {shown}; what it masks keeps a weight"
    if effect.reasons:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in effect.reasons.items())
        yield f"{effect.policy} rejects by: {reasons}"
    turns = effect.turns
    if turns is not None and turns.n_turns:
        yield f"{effect.policy} would mask {turns.mask_rate:.2%} of {turns.n_turns:,} turns"
    for rule, share in effect.tokens.items():
        yield f"{effect.policy}: {rule} would mask or cut {share.at_least:.2%} to {share.at_most:.2%} of the tokens"
    for lack, n in effect.undecided.items():
        yield f"{effect.policy}: {n:,} reports are not decided: {lack}"


def whatif_command(
    policy: Annotated[
        list[str],
        typer.Option(
            help="A preset, a preset with bounds such as trm_max(delta=0.02), or JSON; repeat the option for several."
        ),
    ],
    run: Annotated[
        str | None, typer.Argument(metavar="[PROJECT/RUN]", help="A run; with --source, all of its runs by default.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="A lake or a folder of `trmon export` in place of a service.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only the runs of this project of --source.")] = None,
    from_step: Annotated[int | None, typer.Option("--from", min=0, help="The first step.")] = None,
    to_step: Annotated[int | None, typer.Option("--to", min=0, help="The last step.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Maximum number of steps; the newest are used.")] = 1000,
    workers: Workers = None,
    address: Address = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's JSON, one line per policy.")] = False,
) -> None:
    """Print what policies would have masked of a run's stored sequences, beside what was masked."""
    with plain_errors():
        policies = [parse_policy_argument(text) for text in policy]
        name = None if run is None else str(RunKey.parse(run))
        if source is not None:
            whatif = _StoredWhatIf(policies, from_step=from_step, to_step=to_step, max_steps=max_steps)
            runs = find_stored_runs(source, project=project, runs=[] if name is None else [name])
            if runs is None:
                raise InvalidInput("--source", f"{source} is neither a lake nor a folder of `trmon export`")
            found = whatif.over(runs, workers=workers, address=address)
        elif name is None:
            raise InvalidInput("PROJECT/RUN", "is needed without --source")
        elif project is not None or workers is not None or address is not None:
            raise InvalidInput("--source", "is needed for --project, --workers and --address")
        else:
            with service_of(url) as service:
                found = [
                    service.what_if(name, tried.spec(), (from_step, to_step), max_steps=max_steps) for tried in policies
                ]
        if as_json:
            for effect in found:
                echo_json(encode_answer(effect))
        else:
            print_whatif(found, console())


class _StoredWhatIf:
    """What-ifs over any run of a lake or an archive, which may be sent to other processes."""

    def __init__(
        self, policies: Sequence[Policy], *, from_step: int | None, to_step: int | None, max_steps: int
    ) -> None:
        from trmon.store.archive.runs import WhatIfSteps

        self._policies = policies
        self._steps: WhatIfSteps = WhatIfSteps(from_step=from_step, to_step=to_step, max_steps=max_steps)

    def __call__(self, run: RunSource) -> tuple[list[WhatIfEffect], CoveredRange]:
        from trmon.store.archive.runs import effects_on

        return effects_on(run, self._policies, self._steps)

    def over(self, runs: Sequence[RunSource], *, workers: int | None, address: str | None) -> list[WhatIfInfo]:
        """Return the sum over all runs, as the API returns it for one."""
        from trmon.api.whatif import what_if_info
        from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect

        totals, covered = [WhatIfEffect(policy) for policy in self._policies], CoveredRange()
        for effects, of_run in map_runs(runs, self, workers=workers, address=address):
            covered.merge(of_run)
            for total, effect in zip(totals, effects, strict=True):
                total.merge(effect)
        return [what_if_info(total, covered=covered) for total in totals]
