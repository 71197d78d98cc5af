"""What the shipped rules tell of the stored runs, with a risk by models that had not seen them; kept in a file.

The file says of which rules and which models it is, so that nothing older than these is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trmon.domain.severity import Severity
from trmon_research.collapse.provenance import digest_of_rules
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert
from trmon_research.collapse.stored_runs import RUNS, StoredRun
from trmon_research.judgement.lab_runs import judged_history
from trmon_research.sweep.swept_history import swept_histories

if TYPE_CHECKING:
    from trmon_research.collapse.validation import HeldOut

TOLD = Path(__file__).parents[2] / "data" / "told.json"


class ToldRuns(msgspec.Struct, frozen=True):
    """The messages of each run by its name, and the digest of what told them."""

    of: str
    runs: dict[str, tuple[MonitorAlert, ...]]


def tell(
    runs: Sequence[StoredRun], held_out: HeldOut, *, folder: Path = RUNS, progress: Callable[[str], None]
) -> dict[str, tuple[MonitorAlert, ...]]:
    """Return the messages of runs of a folder, each judged with the risk of its held-out model."""
    model_of = {run.name: model for run, model in zip(runs, held_out.models, strict=True)}
    told = {}
    for swept in swept_histories(folder, runs=[f"sweep/{run.name}" for run in runs]):
        name = swept.history.run.key.run
        found = judged_history(swept.history, model=model_of[name])
        told[name] = tuple(MonitorAlert(one.row, one.spell.finding, one.severity.value) for one in found.told)
        progress(name)
    return told


def read_told(path: Path = TOLD) -> ToldRuns | None:
    """Return the messages in the file; None where it is older than the rules or the model."""
    if not path.exists():
        return None
    found = msgspec.json.decode(path.read_bytes(), type=ToldRuns)
    return found if found.of == digest_of_rules() else None


def write_told(runs: dict[str, tuple[MonitorAlert, ...]], path: Path = TOLD) -> ToldRuns:
    """Write messages, a line a run."""
    found = ToldRuns(digest_of_rules(), dict(sorted(runs.items())))
    lines = (f'"{name}": {msgspec.json.encode(told).decode()}' for name, told in found.runs.items())
    path.write_text(f'{{"of": "{found.of}", "runs": {{\n' + ",\n".join(lines) + "\n}}\n")
    return found


def is_page(alert: MonitorAlert) -> bool:
    """Whether a message is a page."""
    return alert.severity == Severity.PAGE.value
