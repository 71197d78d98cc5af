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


_COMMANDS = {
    "serve": (
        "serve:serve",
        "Run the service: all of it over SQLite; over PostgreSQL the API and, with --workers, workers.",
    ),
    "worker": ("serve:worker", "Process a share of the runs: close batches, evaluate rules, send notifications."),
    "doctor": (
        "serve:doctor",
        "Check settings, database, indexes, clocks, disk and leases; exit with 1 if something is wrong.",
    ),
    "ingest": ("ingest:ingest", "Upload spooled messages to a running service; safe to repeat: the files are kept."),
    "top": ("top:top", "Show every run with its verdict, the most urgent first, until interrupted."),
    "runs": ("runs:runs_command", "List runs, newest first: state, newest step, owner, tags and firing rules."),
    "show": ("show:show", "Print a run: verdict, alerts, cause, evidence, remedy, signals and what policies reject."),
    "diff": (
        "diff:diff_command",
        "Print where runs part, in which signal first, and how their verdicts, policies and configurations differ.",
    ),
    "report": (
        "show:report_command",
        "Write a run as one HTML file that needs no service: verdict, course, alerts, policies and notes.",
    ),
    "diagnose": (
        "diagnose:diagnose_command",
        "Print what is wrong with a run or a log, since when, what it cost and what to change.",
    ),
    "runbook": (
        "diagnose:runbook_command",
        "Print what to do about a run's problem: confirm, rule out, mitigate, verify, with its values and commands.",
    ),
    "budget": (
        "budget:budget_command",
        "Print which mismatch and lag a run can tolerate, where its drift comes from, and the advice for its pipeline.",
    ),
    "whatif": (
        "whatif:whatif_command",
        "Print what policies would have masked of a run's stored sequences, beside what was masked.",
    ),
    "backtest": (
        "backtest:backtest_command",
        "Print what rules would have raised over stored runs, how long before a collapse, and how often in vain.",
    ),
    "preflight": (
        "preflight:preflight_command",
        "Check that rollout engine and trainer give the same tokens the same log-probs at equal weights; name the "
        "cause.",
    ),
    "mcp": (
        "mcp:mcp_command",
        "Answer an assistant's questions about runs by the Model Context Protocol, over stdio; it changes nothing.",
    ),
    "signals": ("signals:signals_command", "Print signals of a run by step, or the names of those it has."),
    "note": ("runs:note_command", "Write a note on a run or on one of its steps, or print its notes, newest first."),
    "delete": (
        "runs:delete_command",
        "Delete a run with all its data, after asking; needs a token with the scope admin.",
    ),
    "replay": (
        "replay:replay_command",
        "Compute the signals, decisions and worst tokens of a trainer's recording again.",
    ),
    "migrate": ("database:migrate", "Migrate the database to this version; `serve` does it automatically."),
    "backup": (
        "database:backup",
        "Copy the SQLite database into one checked file while the service runs (PostgreSQL: use pg_dump).",
    ),
    "restore": (
        "database:restore",
        "Replace the database by a backup and keep the old one next to it; refused while a service uses it.",
    ),
    "export": (
        "database:export",
        "Write a project as partitioned parquet, for DuckDB and `trmon import`, while the service runs.",
    ),
    "query": ("query:query", "Run SQL over all runs, in the database and in the lake; without it, list the tables."),
    "import": ("import_:import_", "Import logs of trainers, or an archive of `trmon export`; safe to repeat."),
    "watch": (
        "watch:watch",
        "Follow a log that a trainer is writing, and send its new steps to a running service, until interrupted.",
    ),
    "demo": (
        "lab:demo_command",
        "Train a healthy, a drifting and a collapsing run against a local service, and print what trmon reported.",
    ),
    "lab": ("lab:lab_command", "Train a small policy by reinforcement learning, which reports to a running service."),
    "lake": ("lake:lake", "Move attempts of ended runs to the lake, and see what has moved."),
    "token": ("administration:token", "Create, list, rotate and revoke API tokens."),
    "notify": ("alerts:notify", "Test the receivers of alerts."),
    "risk": ("risk:risk", "Calibrate the risk of a collapse on your own runs."),
    "rules": ("alerts:rules", "Check and test alert rules."),
    "grafana": ("grafana:grafana", "Push the dashboards to a Grafana."),
}
COMMANDS = {name: CommandEntry(f"trmon.cli.{target}", summary) for name, (target, summary) in _COMMANDS.items()}
"""By name, in the order of the help."""


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
