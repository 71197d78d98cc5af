"""`trmon whatif`: evaluate other policies over stored sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.cli.stored_runs import Address, Workers, find_stored_runs, map_runs
from trmon.domain.errors import InvalidInput
from trmon.terminal.policy_argument import parse_policy_argument
from trmon.terminal.run_argument import parse_run_name
from trmon.terminal.whatif_text import print_whatif
from trmon_client.api.answers import encode_answer
from trmon_client.api.policies import WhatIfInfo

if TYPE_CHECKING:
    from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect
    from trmon.store.archive.runs import RunSource, WhatIfSteps
    from trmon_client.core.policies.policy import Policy


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
        name = None if run is None else str(parse_run_name(run))
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
        from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect

        totals, covered = [WhatIfEffect(policy) for policy in self._policies], CoveredRange()
        for effects, of_run in map_runs(runs, self, workers=workers, address=address):
            covered.merge(of_run)
            for total, effect in zip(totals, effects, strict=True):
                total.merge(effect)
        return [_info(total, covered) for total in totals]


def _info(effect: WhatIfEffect, covered: CoveredRange) -> WhatIfInfo:
    from trmon.api.whatif import what_if_info

    return what_if_info(effect, covered=covered)
