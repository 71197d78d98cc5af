"""Records the golden files: python -m tests.guards.recorder [KIND[/NOUN] ...] [--pictures DIR]

Without a name it records all of them: `routes/alerts`, `commands`, ... replace a noun or a kind. `--pictures` writes a
picture of each view of the page, light and dark, to a folder. The tests compare what is recorded by the same functions.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.guards import commands, notices, packages, page, routes
from tests.guards.golden_files import record
from tests.guards.recorded_service import RecordedService, recorded_service

FAST = ("routes", "metrics", "events", "notifications", "errors", "changes")
"""The kinds that need the service alone, in the order in which they are asked for: the last changes the runs."""
SLOW = ("page", "commands", "help", "errors-of-commands", "errors-of-client", "packages")
"""The kinds that start processes and a browser; they come first, while the runs are as they were reported."""


def documents(
    service: RecordedService, folder: Path, kinds: Container[str], *, pictures: Path | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield what trmon says now, each with its name `<kind>/<noun>`."""
    client = service.client
    askers: dict[str, Callable[[], dict[str, Any]]] = {
        "page": lambda: {"views": page.views(service.url, pictures)},
        "commands": lambda: commands.texts(service, folder),
        "help": commands.helps,
        "errors-of-commands": lambda: {"all": commands.refusals(service, folder)},
        "errors-of-client": lambda: {"all": commands.client_refusals(folder)},
        "packages": lambda: {"wheels": packages.wheels(folder / "wheels"), "imports": packages.imports()},
        "routes": lambda: {"all": routes.documented(client), **routes.reads(client)},
        "metrics": lambda: {"metrics": routes.metrics(client)},
        "events": lambda: {"run": routes.events(client)},
        "notifications": lambda: {"webhook": notices.webhooks(service), "mail": notices.mails(service)},
        "errors": lambda: routes.refusals(client),
        "changes": lambda: routes.changes(client),
    }
    routes.reads(client)
    for kind in (*SLOW, *FAST):
        if kind in kinds:
            yield from ((f"{kind}/{noun}", document) for noun, document in askers[kind]().items())


@contextmanager
def fresh() -> Iterator[tuple[RecordedService, Path]]:
    """Return a separate service, and a folder for what is written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        with recorded_service(folder / "data") as service:
            yield service, folder


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KIND[/NOUN]")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    wanted = tuple(given.names) or (*SLOW, *FAST)
    kinds = {name.partition("/")[0] for name in wanted} | ({"page"} if given.pictures else set())
    with fresh() as (service, folder):
        for name, document in documents(service, folder, kinds, pictures=given.pictures):
            if name.startswith(wanted):
                record(name, document)


if __name__ == "__main__":
    main()
