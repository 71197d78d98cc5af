"""Records the golden files: python -m tests.guards.recorder [KIND[/NOUN] ...] [--pictures DIR]

Without a name it records all of them: `routes/alerts`, `commands`, ... replace a noun or a kind. `--pictures` writes a
picture of each view of the page, light and dark, to a folder. The tests compare what is recorded by the same functions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.fixtures.assistant import Assistant, connected
from tests.guards import commands, page, routes
from tests.guards.golden_files import VARIES, lines, plain, plain_text, record
from tests.guards.recorded_service import (
    CRASHED,
    DRIFTING,
    ENFORCED,
    HEALTHY,
    RUNS,
    SCALARS,
    RecordedService,
    recorded_service,
)
from trmon.assistants.server import build_server
from trmon_client.api import Service

FAST = ("routes", "assistants", "metrics", "events", "notifications", "errors", "changes")
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
        "packages": lambda: {"wheels": wheels(folder / "wheels"), "imports": imports()},
        "routes": lambda: {"all": routes.documented(client), **routes.reads(client)},
        "assistants": lambda: tools(service.url),
        "metrics": lambda: {"metrics": routes.metrics(client)},
        "events": lambda: {"run": routes.events(client)},
        "notifications": lambda: {"webhook": webhooks(service), "mail": mails(service)},
        "errors": lambda: routes.refusals(client),
        "changes": lambda: routes.changes(client),
    }
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
            routes.settle(service.client)
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


def webhooks(service: RecordedService) -> dict[str, Any]:
    """Return what was posted by its delivery; what else fires depends on how far the run was by then."""
    found = {}
    for one in service.webhook.posted:
        body = json.loads(one.body)
        firing = sorted({name for other in body["firing"] for name in other})
        headers = {name: plain(value, name.lower()) for name, value in one.headers.items() if name != "Content-Length"}
        headers |= {name: VARIES for name in headers if "timestamp" in name.lower() or name in ("Host", "User-Agent")}
        at = "/".join(plain(one.headers["X-Trmon-Delivery"]).split(":")[1:3])
        found[at] = {"headers": headers, "body": plain({**body, "firing": None}) | {"names in firing": firing}}
    return found


def mails(service: RecordedService) -> dict[str, Any]:
    """Return the mails by subject, as lines."""
    return {
        str(one.message["Subject"]): {
            "headers": {name: "\n".join(lines(str(value))) for name, value in one.message.items()},
            "parts": {
                part.get_content_type(): [line for line in lines(part.get_content()) if "Also firing" not in line]
                if part.get_content_maintype() == "text"
                else {name: plain_text(str(value)) for name, value in part.items()}
                for part in one.message.walk()
                if not part.is_multipart()
            },
        }
        for one in service.mail.received
    }


STRICT = '{"name": "strict", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}'
SIGNALS = ["engine_lag", "mismatch_kl_k3"]
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("list_runs", asked) for asked in ({}, {"words": "dapo", "limit": 1}, {"need": "now"}, {"project": "code"})),
    *(("diagnose_run", {"run": run}) for run in RUNS),
    # The options of the launch depend on the machine.
    *(("describe_run", {"run": run, "options": "lr engine."}) for run in RUNS),
    ("describe_run", {"run": DRIFTING, "options": "optim"}),
    *(("list_signal_names", {"run": DRIFTING, "words": words}) for words in ("kl", "nosuch")),
    ("read_signals", {"run": DRIFTING, "names": SIGNALS, "points": 3}),
    ("read_signals", {"run": DRIFTING, "names": SIGNALS[:1], "from_step": 14, "to_step": 17}),
    ("read_signals", {"run": SCALARS, "names": ["reward_mean"], "points": 3}),
    *(
        ("worst_sequences", {"run": DRIFTING, "step": 30, "limit": 2, "by": by})
        for by in ("divergence", "log_ratio", "low_reward", "length")
    ),
    ("worst_sequences", {"run": DRIFTING, "step": 30, "limit": 1, "pair": "staleness"}),
    ("worst_sequences", {"run": ENFORCED, "step": 5, "limit": 1}),
    *(("list_alerts", asked) for asked in ({"limit": 2}, {"run": HEALTHY}, {"run": CRASHED}, {"state": "resolved"})),
    ("list_alerts", {"run": DRIFTING, "incidents_only": True, "state": "firing"}),
    ("list_notes", {"run": HEALTHY}),
    ("compare_runs", {"runs": [DRIFTING, HEALTHY]}),
    ("compare_runs", {"runs": [DRIFTING, ENFORCED, CRASHED]}),
    *(("what_if_policy", {"run": DRIFTING, "policy": policy}) for policy in ("geo_mask(lower=0.5)", STRICT)),
    ("what_if_policy", {"run": DRIFTING, "policy": STRICT, "from_step": 20, "max_steps": 4}),
    *((tool, {"run": run}) for tool in ("run_budget", "collapse_risk") for run in (DRIFTING, HEALTHY, SCALARS)),
    *(("explain", {"name": name}) for name in ("mask_rate", "stale_rollouts", "stale rollouts", "solved")),
    *(("explain", {"name": name}) for name in ("mismatch_kl_k3", "kl_k3", "reward_mean")),
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    *(("diagnose_run", {"run": run}) for run in ("math/drif", "drift", "../tokens", "math/nosuch")),
    ("read_signals", {"run": DRIFTING, "names": ["kl_k33"]}),
    ("read_signals", {"run": DRIFTING, "names": ["lr"], "from": 3}),
    ("read_signals", {"run": DRIFTING, "names": []}),
    ("worst_sequences", {"run": DRIFTING, "step": 3000}),
    ("worst_sequences", {"run": DRIFTING, "step": 30, "by": "age"}),
    ("what_if_policy", {"run": DRIFTING, "policy": "wisdom"}),
    ("compare_runs", {"runs": [DRIFTING, "math/nosuch"]}),
    *(("explain", {"name": name}) for name in ("stale_rolouts", "?")),
    ("delete_run", {"run": DRIFTING}),
]
ADVERTISED = "\n    For further information"
"""What pydantic adds, with its version."""


def tools(url: str) -> dict[str, dict[str, Any]]:
    """Return the answers of the tools of `trmon mcp`, and what the server says of itself."""
    with Service(url) as service, connected(build_server(service)) as assistant:
        found: dict[str, dict[str, Any]] = {}
        for tool, asked in QUESTIONS:
            found.setdefault(tool, {})[str(asked)] = plain(assistant.ask(tool, **asked))
        return {**found, "refusals": _refusals(assistant), "server": _described(assistant)}


def _refusals(assistant: Assistant) -> dict[str, Any]:
    said = {f"{tool} {asked}": plain(assistant.refusal(tool, **asked)) for tool, asked in REFUSED}
    return {asked: refusal.partition(ADVERTISED)[0] for asked, refusal in said.items()}


def _described(assistant: Assistant) -> dict[str, Any]:
    return {
        "instructions": assistant.instructions.splitlines(),
        "tools": {one.name: {"says": one.description, "asks": one.input_schema} for one in assistant.tools()},
    }


REPOSITORY = Path(__file__).parents[2]
OURS = ("trmon", "trmon_client")


def wheels(folder: Path) -> dict[str, Any]:
    """Return the files of both wheels: those that are no code by name, and of code the packages of the first level."""
    projects = [str(REPOSITORY / "client"), str(REPOSITORY)]
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(folder), *projects], check=True, cwd=folder)
    found = {}
    for path in sorted(folder.glob("*.whl")):
        names = [name for name in ZipFile(path).namelist() if ".dist-info/" not in name]
        code = [name for name in names if name.endswith(".py")]
        static = Counter(Path(name).suffix for name in names if "/static/" in name)
        found[path.name.split("-")[0]] = {
            "packages": sorted({"/".join(name.split("/")[:2]) for name in code if name.count("/") > 1}),
            "other files": sorted({*names} - {*code} - {name for name in names if "/static/" in name}),
            "kinds of files of the page": sorted(static),
        }
    return found


def imports() -> dict[str, Any]:
    """Return the packages besides Python's own that `import trmon_client` and `init` load."""
    found = {}
    for what, code in (("import", "import trmon_client"), ("init", "import trmon_client; trmon_client.init")):
        program = f"import sys; before = {{*sys.modules}}; {code}; print(*({{*sys.modules}} - before))"
        modules = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        tops = {name.partition(".")[0] for name in modules}
        found[what] = {
            "packages": sorted(top for top in tops if top not in sys.stdlib_module_names and not top.startswith("__")),
            "modules": len(modules),
            "ours": sum(name.split(".")[0] in OURS for name in modules),
        }
    return found


if __name__ == "__main__":
    main()
