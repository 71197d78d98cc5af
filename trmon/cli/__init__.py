"""The command `trmon`: one file per command, each a few lines over the package that does the work."""

from __future__ import annotations

from collections.abc import Callable

import typer

from trmon.cli.audit import audit_command
from trmon.cli.backup import backup, restore
from trmon.cli.diagnose import diagnose_command
from trmon.cli.doctor import doctor
from trmon.cli.export import export, import_
from trmon.cli.grafana import grafana
from trmon.cli.ingest import ingest
from trmon.cli.lab import demo_command, lab_command
from trmon.cli.migrate import migrate
from trmon.cli.notify import notify
from trmon.cli.quota import quota
from trmon.cli.rules import rules
from trmon.cli.serve import serve
from trmon.cli.show import show
from trmon.cli.token import token
from trmon.cli.top import top
from trmon.cli.version import version_command
from trmon.cli.whatif import whatif_command
from trmon.cli.worker import worker

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Watch LLM reinforcement-learning runs for off-policy drift."
)

COMMANDS: dict[str, Callable[..., None]] = {
    "serve": serve,
    "worker": worker,
    "doctor": doctor,
    "ingest": ingest,
    "top": top,
    "show": show,
    "diagnose": diagnose_command,
    "whatif": whatif_command,
    "migrate": migrate,
    "backup": backup,
    "restore": restore,
    "export": export,
    "import": import_,
    "audit": audit_command,
    "version": version_command,
    "demo": demo_command,
    "lab": lab_command,
}
GROUPS = {"token": token, "quota": quota, "notify": notify, "rules": rules, "grafana": grafana}

for name, command in COMMANDS.items():
    app.command(name)(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
