"""The command `trmon`: every command is a few lines over the part that does the work."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from trmon.app import logs
from trmon.app.auth import digest_of, new_secret
from trmon.app.diagnosis import asking
from trmon.app.diagnosis.text import show
from trmon.app.receivers import try_out
from trmon.app.rules import files as rulefiles
from trmon.app.server import Server, bind, url_of
from trmon.app.service import create_app
from trmon.app.settings import Settings
from trmon.app.spooled import Sender, segments_in
from trmon.domain.access import Scope
from trmon.domain.errors import InvalidInput, NotReady, TrmonError
from trmon.domain.identity import checked_name
from trmon.notify.receiver import Outcome
from trmon.store import Store
from trmon_client.core import wire

SECONDS_PER_DAY = 86_400.0
INJECTIONS = "What goes wrong: quantise, stale, router, pad, support or lr."

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Watches LLM RL runs for off-policy drift.")
token = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens that may call the service.")
app.add_typer(token, name="token")
notify = typer.Typer(no_args_is_help=True, help="Try the receivers of alerts.")
app.add_typer(notify, name="notify")

rules = typer.Typer(no_args_is_help=True, help="Check and test the rules that make alerts.")
app.add_typer(rules, name="rules")

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the embedded database.")]


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the service: the API, the worker and the page in one process."""
    with _failing_plainly():
        settings = _settings(host=host, port=port, data_dir=data_dir)
        logs.configure(settings)
        bound = bind(settings)
        url = url_of(bound)
        if settings.public_url is None:
            settings = settings.model_copy(update={"public_url": url})
        Server(create_app(settings), url=url).run([bound])


@app.command()
def ingest(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A spool directory of the client.")],
    url: Annotated[str | None, typer.Option(help="The service to send to.")] = None,
) -> None:
    """Send what clients spooled to a running service; again changes nothing, so the files are left as they are."""
    with _failing_plainly():
        settings = _settings(url=url)
        sender = Sender(settings.url, token=settings.token.get_secret_value() if settings.token else None)
        counts: Counter[str] = Counter()
        for segment in segments_in(directory):
            counts += sender.send(segment)
        sender.close()
        typer.echo(", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "nothing to send")
        if counts["invalid"] or counts["conflict"] or counts["damaged"]:
            raise typer.Exit(1)


@app.command()
def diagnose(
    run: Annotated[str | None, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Instead, a JSON object of signals under our, verl's or TRL's names.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The service to ask.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the API answers.")] = False,
) -> None:
    """Say what is wrong with a run, since when, and what to change; of a run, or of anybody's log line."""
    with _failing_plainly():
        if metrics is not None:
            if run is not None:
                raise InvalidInput("RUN", "and --metrics were both given; give one of them")
            found = asking.of_metrics(metrics)
        else:
            settings = _settings(url=url)
            token = settings.token.get_secret_value() if settings.token else None
            found = asking.of_run(run or "", url=settings.url, token=token)
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            show(found, Console())


@app.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema to this version; `serve` does so by itself."""
    with _failing_plainly(), _store(data_dir) as store:
        store.migrate()
        typer.echo("the database is up to date")


@app.command()
def version() -> None:
    """Print the versions of the service, of the client and of the wire."""
    versions = {name: version_of(name) for name in ("trmon", "trmon-client")}
    typer.echo(", ".join(f"{name} {number}" for name, number in versions.items()))
    typer.echo(f"wire {wire.WIRE_MAJOR}.{wire.WIRE_MINOR}, semantics {wire.SEMANTICS_VERSION}")


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; may be given more than once.")],
    project: Annotated[str | None, typer.Option(help="Only this project; without, all.")] = None,
    days: Annotated[float, typer.Option(min=0.001, help="How long it is valid.")] = 365.0,
    data_dir: DataDir = None,
) -> None:
    """Make a token and print it, once."""
    with _failing_plainly(), _store(data_dir) as store:
        store.migrate()
        secret, now = new_secret(), time.time()
        store.tokens.create(
            name=checked_name(name, field="NAME"),
            digest=digest_of(secret),
            scopes=set(scope),
            project=None if project is None else checked_name(project, field="--project"),
            created_at=now,
            expires_at=now + days * SECONDS_PER_DAY,
        )
        typer.echo(secret)


@token.command("list")
def list_tokens(data_dir: DataDir = None) -> None:
    """List the tokens, without their secrets."""
    with _failing_plainly(), _store(data_dir) as store:
        store.migrate()
        table = Table("name", "scopes", "project", "expires")
        for known in store.tokens.list():
            scopes = ", ".join(sorted(scope.value for scope in known.scopes))
            expires = "never" if known.expires_at is None else time.strftime("%F", time.gmtime(known.expires_at))
            table.add_row(known.name, scopes, known.project or "all", expires)
        Console().print(table)


@token.command("revoke")
def revoke_token(name: Annotated[str, typer.Argument()], data_dir: DataDir = None) -> None:
    """Revoke a token; a running service refuses it within two seconds."""
    with _failing_plainly(), _store(data_dir) as store:
        store.migrate()
        store.tokens.revoke(name).result()
        typer.echo(f"revoked {name}")


@notify.command("test")
def try_receivers() -> None:
    """Send a test alert, firing and then resolved, through every configured receiver, and print the outcome."""
    with _failing_plainly():
        heard = True
        for name, state, result in try_out(_settings(), now=time.time()):
            heard &= result.outcome is Outcome.DELIVERED
            typer.echo(f"{name}: {state.value} {result.outcome.value}{f' ({result.reason})' if result.reason else ''}")
        if not heard:
            raise typer.Exit(1)


@app.command()
def demo(
    inject: Annotated[
        str, typer.Option(help="What goes wrong: quantise, stale, router, pad, support or lr.")
    ] = "stale",
    seed: Annotated[int, typer.Option(help="Seed of both runs.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 200,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the service up at the end, to look around in.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Train a healthy and an ill run under a service of their own, and tell what trmon said of them."""
    with _failing_plainly():
        lab = _lab()
        choices = lab.Choices(lab.injection(inject), seed=seed, n_steps=steps, keep=keep, data_dir=data_dir)
        if not lab.demo(choices, console=Console()):
            raise typer.Exit(1)


@app.command("lab")
def train(
    run: Annotated[str, typer.Option(help="Name of the run.")],
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    url: Annotated[str | None, typer.Option(help="The service to report to; without, a spool directory.")] = None,
    inject: Annotated[str | None, typer.Option(help=f"{INJECTIONS} Without, nothing.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps to train.")] = 200,
) -> None:
    """Train one small policy by reinforcement learning, watched by a running service."""
    with _failing_plainly():
        lab = _lab()
        config = lab.configured(inject, seed=seed, n_steps=steps)
        for result in lab.train(config, url=url, project=project, name=run):
            typer.echo(f"step {result.step} reward {result.reward:.3f} exact {result.exact:.3f}")


@rules.command("check")
def check_rules(file: Annotated[Path, typer.Argument(metavar="FILE", help="Rules, as YAML.")]) -> None:
    """Say whether a file of rules can be read, and if not, where it is wrong."""
    with _failing_plainly():
        n_rules = len(rulefiles.read(file))
        typer.echo(f"{file}: ok; with the built-in ones {n_rules} rules")


@rules.command("test")
def test_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Series and expected alerts, as YAML.")],
) -> None:
    """Run series of signals through rules, and compare the alerts with those expected."""
    with _failing_plainly():
        verdicts = rulefiles.test(file)
        for verdict in verdicts:
            typer.echo(str(verdict))
        if not all(verdict.passed for verdict in verdicts):
            raise typer.Exit(1)


def _lab() -> Any:
    """Return the lab, which needs torch. Errors: NotReady where torch is not installed."""
    try:
        from trmon.lab import commands
    except ModuleNotFoundError as error:
        raise NotReady(f"the lab needs {error.name}; pip install 'trmon[lab]' brings it") from error
    return commands


def _settings(**given: Any) -> Settings:
    return Settings(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def _store(data_dir: Path | None) -> Iterator[Store]:
    store = Store.open(_settings(data_dir=data_dir).store_url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _failing_plainly() -> Iterator[None]:
    """End with one line that says what is wrong instead of a traceback, for everything that is expected."""
    try:
        yield
    except ValidationError as error:
        for wrong in error.errors():
            typer.echo(f"TRMON_{'_'.join(map(str, wrong['loc'])).upper()}: {wrong['msg']}", err=True)
        sys.exit(2)
    except TrmonError as error:
        typer.echo(f"trmon: {error}", err=True)
        sys.exit(1)
