"""The commands: where each is defined, and its summary; nothing of them is imported here."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class CommandEntry(NamedTuple):
    """Where a command is defined, as module:attribute, and the first line of its help."""

    target: str
    summary: str


COMMANDS = {
    "serve": CommandEntry(
        "trmon.cli.serve:serve",
        "Run the service: all of it over SQLite; over PostgreSQL the API and, with --workers, workers.",
    ),
    "worker": CommandEntry(
        "trmon.cli.serve:worker", "Process a share of the runs: close batches, evaluate rules, send notifications."
    ),
    "doctor": CommandEntry(
        "trmon.cli.serve:doctor",
        "Check settings, database, indexes, clocks, disk and leases; exit with 1 if something is wrong.",
    ),
    "ingest": CommandEntry(
        "trmon.cli.ingest:ingest", "Upload spooled messages to a running service; safe to repeat: the files are kept."
    ),
    "top": CommandEntry(
        "trmon.cli.top:top", "Show every run with its verdict, the most urgent first, until interrupted."
    ),
    "runs": CommandEntry(
        "trmon.cli.runs:runs_command", "List runs, newest first: state, newest step, owner, tags and firing rules."
    ),
    "show": CommandEntry(
        "trmon.cli.show:show",
        "Print a run: verdict, alerts, cause, evidence, remedy, signals and what policies reject.",
    ),
    "diff": CommandEntry(
        "trmon.cli.diff:diff_command",
        "Print where runs part, in which signal first, and how their verdicts, policies and configurations differ.",
    ),
    "report": CommandEntry(
        "trmon.cli.show:report_command",
        "Write a run as one HTML file that needs no service: verdict, course, alerts, policies and notes.",
    ),
    "diagnose": CommandEntry(
        "trmon.cli.diagnose:diagnose_command",
        "Print what is wrong with a run or a log, since when, what it cost and what to change.",
    ),
    "budget": CommandEntry(
        "trmon.cli.budget:budget_command",
        "Print which mismatch and lag a run can bear, where its drift comes from, and the advice for its pipeline.",
    ),
    "whatif": CommandEntry(
        "trmon.cli.whatif:whatif_command",
        "Print what policies would have masked of a run's stored sequences, beside what was masked.",
    ),
    "backtest": CommandEntry(
        "trmon.cli.backtest:backtest_command",
        "Print what rules would have raised over stored runs, how long before a collapse, and how often in vain.",
    ),
    "preflight": CommandEntry(
        "trmon.cli.preflight:preflight_command",
        "Check that rollout engine and trainer give the same tokens the same log-probs at equal weights; name the "
        "cause.",
    ),
    "mcp": CommandEntry(
        "trmon.cli.mcp:mcp_command",
        "Answer an assistant's questions about runs by the Model Context Protocol, over stdio; it changes nothing.",
    ),
    "signals": CommandEntry(
        "trmon.cli.signals:signals_command", "Print signals of a run by step, or the names of those it has."
    ),
    "note": CommandEntry(
        "trmon.cli.note:note_command",
        "Write a note on a run or on one of its steps, or print its notes, newest first.",
    ),
    "edit": CommandEntry(
        "trmon.cli.runs:edit_command",
        "Change the owner and the tags of runs, archive them, or take them back; needs a token with the scope admin.",
    ),
    "delete": CommandEntry(
        "trmon.cli.runs:delete_command",
        "Delete a run with all its data, after asking; needs a token with the scope admin.",
    ),
    "replay": CommandEntry(
        "trmon.cli.replay:replay_command",
        "Compute the signals, decisions and worst tokens of a trainer's recording again.",
    ),
    "migrate": CommandEntry(
        "trmon.cli.database:migrate", "Migrate the database to this version; `serve` does it automatically."
    ),
    "backup": CommandEntry(
        "trmon.cli.database:backup",
        "Copy the SQLite database into one checked file while the service runs (PostgreSQL: use pg_dump).",
    ),
    "restore": CommandEntry(
        "trmon.cli.database:restore",
        "Replace the database by a backup and keep the old one beside it; refused while a service uses it.",
    ),
    "export": CommandEntry(
        "trmon.cli.database:export",
        "Write a project as partitioned parquet, for DuckDB and `trmon import`, while the service runs.",
    ),
    "query": CommandEntry(
        "trmon.cli.query:query", "Run SQL over all runs, in the database and in the lake; without it, list the tables."
    ),
    "import": CommandEntry(
        "trmon.cli.import_:import_", "Import logs of trainers, or an archive of `trmon export`; safe to repeat."
    ),
    "watch": CommandEntry(
        "trmon.cli.watch:watch",
        "Follow a log that a trainer is writing, and send its new steps to a running service, until interrupted.",
    ),
    "audit": CommandEntry(
        "trmon.cli.audit:audit_command", "Show administrative actions, newest first: when, who, what, before and after."
    ),
    "version": CommandEntry(
        "trmon.cli:version_command", "Print the versions of the service, the client and the wire format."
    ),
    "demo": CommandEntry(
        "trmon.cli.lab:demo_command",
        "Train a healthy, a drifting and a collapsing run against a local service, and print what trmon reported.",
    ),
    "lab": CommandEntry(
        "trmon.cli.lab:lab_command",
        "Train a small policy by reinforcement learning, which reports to a running service.",
    ),
    "lake": CommandEntry("trmon.cli.lake:lake", "Move attempts of ended runs to the lake, and see what has moved."),
    "token": CommandEntry("trmon.cli.token:token", "Create, list, rotate and revoke API tokens."),
    "quota": CommandEntry("trmon.cli.quota:quota", "Limit what projects store and send."),
    "notify": CommandEntry("trmon.cli.alerts:notify", "Test the receivers of alerts."),
    "rules": CommandEntry("trmon.cli.alerts:rules", "Check and test alert rules."),
    "grafana": CommandEntry("trmon.cli.grafana:grafana", "Push the dashboards to a Grafana."),
}


class LazyGroup(TyperGroup):
    """Lists placeholders with the summaries of `COMMANDS`, and loads the command that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See TyperGroup."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the command, or the group of commands, of a name and return it as Typer builds it."""
    loaded = resolve_name(COMMANDS[name].target)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_group(loaded)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(loaded)
    return typer.main.get_command(alone)
