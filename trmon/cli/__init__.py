"""The command `trmon`: one file per command, each a few lines over the package that does the work."""

from __future__ import annotations

import typer

from trmon.cli.backup import backup, restore
from trmon.cli.diagnose import diagnose_command
from trmon.cli.doctor import doctor
from trmon.cli.export import export, import_
from trmon.cli.grafana import grafana
from trmon.cli.ingest import ingest
from trmon.cli.lab import demo_command, lab_command
from trmon.cli.migrate import migrate
from trmon.cli.notify import notify
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

for command in (
    serve,
    worker,
    doctor,
    ingest,
    top,
    show,
    diagnose_command,
    whatif_command,
    migrate,
    backup,
    restore,
    export,
    version_command,
    demo_command,
):
    app.command()(command)
app.command("import")(import_)
app.command("lab")(lab_command)
for name, group in {"token": token, "notify": notify, "rules": rules, "grafana": grafana}.items():
    app.add_typer(group, name=name)
