"""What commands print on terminals of 80 and 120 columns, their help, and what they and the client say to bad input."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import chdir
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import trmon_client as trmon
from tests.guards.golden_files import lines
from tests.guards.recorded_service import DRIFTING, HEALTHY, RULES, RUNS, RecordedService
from trmon.cli import app

WIDTHS = (80, 120)
TERMINAL = {"TTY_COMPATIBLE": "1", "TERM": "dumb", "LINES": "50"}
"""What makes an output count as a terminal without colours."""
LATER_SECONDS = 120.0
GROUPS = ("lab", "lake", "token", "notify", "risk", "rules", "grafana")
NEEDS_SERVICE = [
    *("top --once", "runs", *(f"show {run}" for run in RUNS), f"diff {HEALTHY} {DRIFTING}"),
    *(f"diagnose {DRIFTING}", f"budget {DRIFTING}", f"whatif --policy geo_mask --policy trm_max {DRIFTING}"),
    *(f"signals {DRIFTING}", f"signals {DRIFTING} total_kl_k3 mask_rate --points 4", f"note {DRIFTING}"),
    *(f"signals {DRIFTING} total_kl_k3 --steps 20:22 --csv", f"report {DRIFTING} -o %TMP%/report.html"),
]
NEEDS_DATABASE = (
    "token list",
    "query",
)
ALONE = ("--version", "diagnose --example", "rules check %TMP%/rules.yaml", "whatif nosuch/run --policy seq_mis")
STRICT = "--policy 'trm_max(delta=0.02)'"
AWAY = "--url http://127.0.0.1:9"
BAD = (
    *("nosuch", "show", "show drift", "show math/nosuch", f"show {DRIFTING} --colour red", "runs --state up"),
    *(f"signals {DRIFTING} total_kl_k", f"signals {DRIFTING} lr --steps last", f"signals {DRIFTING} lr --csv --json"),
    *(f"diff {DRIFTING} math/nosuch", "delete math/drif --yes", "rules check %TMP%/bad.yaml", "serve --port 70000"),
    *("worker --data-dir %TMP%/new", "top --url nonsense", f"runs {AWAY}", "token rotate nosuch"),
    *("restore %TMP%/rules.yaml", "preflight %TMP%/nosuch.npz", "notify test nosuch", "notify test"),
    "query 'DROP TABLE run'",
    *(f"query 'SELECT 1' {given} --data-dir %DATA%" for given in ("--format parquet", "-o x")),
    *("diagnose %TMP%/nosuch.jsonl", *(f"diagnose %TMP%/foo.{kind}" for kind in ("jsonl", "json", "log"))),
    *("diagnose --example a.json", "diagnose drift", f"diagnose {DRIFTING} --gpus 8"),
    f"diagnose {DRIFTING} --rules rules.yaml",
    *("import %TMP%/rules.yaml", "import %TMP%/log.jsonl %TMP%/log.jsonl --project math --run a"),
    *("import %TMP%/log.jsonl --project math --data-dir data", f"import %TMP%/log.jsonl --project math {AWAY}"),
    "import %TMP%/nosuch.jsonl --project math",
    *(f"whatif {DRIFTING} --policy nosuch", f"whatif {DRIFTING} --policy 'trm_max(depth=1)' {AWAY}"),
    *(f"whatif {DRIFTING} --policy 'trm_max(delta=much)' {AWAY}", f"whatif {DRIFTING} --policy '{{' {AWAY}"),
    *(f"whatif {STRICT}", f"whatif {DRIFTING} {STRICT} --workers 2", f"whatif --source %TMP% {STRICT}"),
    *("backtest nowhere", "backtest ftp://there", "backtest http://127.0.0.1:1 --workers 1"),
    *("backtest --against builtin", "backtest -o x"),
    "lab --inject gremlins",
    *("grafana push", *(f"grafana push --token glsa_secret --url '{url}'" for url in ("http://[::1", "http://"))),
    *("lake status", "lake move --data-dir %DATA%"),
    *(f"TRMON_LAKE_URL={url} lake move --data-dir %DATA%" for url in ("s3:///lake", "s3://key:secret@bucket/lake")),
    *(f"TRMON_{name} doctor --data-dir %TMP%/new" for name in ("PORT=high", "GRACE_SECONDS=0", "ROUTES={")),
    *(f"TRMON_WEBHOOK_URL={url} doctor --data-dir %TMP%/new" for url in ("ftp://x", "https://[::1/secret")),
    *("TRMON_SLACK_URL=https://xn--/secret doctor --data-dir %TMP%/new", "'TRMON_TOKEN=se\ncret' top --once"),
    *(f"TRMON_DATABASE_URL=postgresql://me:secret@127.0.0.1:{rest} migrate" for rest in ("port/x", "1/x?foo=bar")),
)
"""What is refused, some of it with a setting before the command."""


def texts(service: RecordedService, folder: Path) -> dict[str, dict[str, Any]]:
    """Return by command what its lines are, over the recorded service, its database, and alone."""
    (folder / "rules.yaml").write_text(RULES)
    found: dict[str, dict[str, Any]] = {}
    given = {"TRMON_URL": service.url, "TRMON_DATA_DIR": str(service.process.data_dir), "TRMON_LOG_LEVEL": "error"}
    for command in (*NEEDS_SERVICE, *NEEDS_DATABASE, *ALONE):
        wide = WIDTHS if "--json" not in command and "--csv" not in command else WIDTHS[:1]
        shown = {f"{width} columns": run(command, folder, COLUMNS=str(width), **TERMINAL, **given) for width in wide}
        same = len(shown) == 2 and shown["80 columns"] == shown["120 columns"]
        found.setdefault(command.split()[0].strip("-"), {})[command] = shown["80 columns"] if same else shown
    return found


def helps() -> dict[str, dict[str, Any]]:
    """Return by command the lines of its help, and of those of a group."""
    top = _help("")
    found = {"trmon": {"--help": top}}
    for name in _names(top):
        found[name] = {"--help": _help(name)}
        for one in _names(found[name]["--help"]) if name in GROUPS else ():
            found[name][f"{one} --help"] = _help(f"{name} {one}")
    return found


def _help(command: str) -> list[str]:
    """Return the help of a command, in this process: there are sixty of them."""
    return lines(CliRunner().invoke(app, f"{command} --help", env={"COLUMNS": "80"}, prog_name="trmon").output)


def refusals(service: RecordedService, folder: Path) -> dict[str, Any]:
    """Return what commands say to bad arguments and settings."""
    (folder / "rules.yaml").write_text(RULES)
    (folder / "bad.yaml").write_text(RULES.replace("below", "beneath"))
    (folder / "empty.json").write_text("{}")
    (folder / "log.jsonl").write_text('{"step": 0, "reward": 0.5}\n')
    for kind in ("jsonl", "json", "log"):
        (folder / f"foo.{kind}").write_text('{"foo": 1}\n')
    given = {"COLUMNS": "120", "TRMON_URL": service.url, "TRMON_LOG_LEVEL": "error"}
    return {command: run(command.replace("%DATA%", str(service.process.data_dir)), folder, **given) for command in BAD}


def client_refusals(folder: Path) -> dict[str, str]:
    """Return what the client says to bad arguments: at `init` as errors, later on the first line of standard error."""
    good: dict[str, Any] = {"project": "p", "run": "r", "spool_dir": folder / "spool"}
    bad: dict[str, dict[str, Any]] = {
        "no run of two processes": {"run": None, "rank": 0, "world_size": 2},
        "a name with a slash": {"run": "a/b"},
        "an unknown policy": {"policy": "nosuch"},
        "a policy without criteria": {"policy": {"name": "x"}},
        "an unknown mode": {"mode": "on"},
        "a rank beyond the world": {"rank": 3, "world_size": 2},
        "a url of another scheme": {"url": "ftp://x", "spool_dir": None},
        "a url without a scheme": {"url": "127.0.0.1:8642"},
        "neither url nor spool": {"spool_dir": None, "url": ""},
        "a tag with a newline": {"tags": ["a\nb"]},
    }
    found = {what: _said(lambda **it: trmon.init(**it).close(), **good | changed) for what, changed in bad.items()}
    two = np.zeros((2, 4), np.float32)
    batches: dict[str, dict[str, Any]] = {
        "no second log-probs": {"logprobs": two},
        "shapes that differ": {"logprobs": two, "rollout_logprobs": two[:, :3]},
        "no mask": {"mask": None, "logprobs": two, "rollout_logprobs": two},
        "group ids of another length": {"logprobs": two, "rollout_logprobs": two, "group_ids": np.zeros(3, np.int64)},
        "positive log-probs": {"logprobs": two + 5, "rollout_logprobs": two},
        "words": {"logprobs": "x", "rollout_logprobs": two},
    }
    for what, arrays in batches.items():
        with trmon.init(**good, attempt=what.replace(" ", "-")) as monitor:
            found[what] = _said(monitor.log_batch, **{"step": 0, "mask": np.ones((2, 4), bool), **arrays})
    return {what: "\n".join(lines(said)) for what, said in found.items()}


def _said(call: Callable[..., object], **given: Any) -> str:
    """Return the error of a call, or that there is none."""
    try:
        call(**given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def run(command: str, folder: Path, **variables: str) -> dict[str, Any]:
    """Run a command in this process; return its exit status where it is not 0, and its lines."""
    inherited = {name: None for name in os.environ if name.startswith(("TRMON_", "COLUMNS"))}
    words = shlex.split(command.replace("%TMP%", str(folder)))
    settings = dict(word.split("=", 1) for word in takewhile(lambda word: word.startswith("TRMON_"), words))
    clock = time.time
    with chdir(folder), pytest.MonkeyPatch.context() as later:
        # How wide "seen" is does not depend on how long the machine took: each run was seen some minutes ago.
        later.setattr(time, "time", lambda: clock() + LATER_SECONDS)
        done = CliRunner().invoke(
            app, words[len(settings) :], env={**inherited, **variables, **settings}, prog_name="python -m trmon"
        )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    found: dict[str, Any] = {"exit": done.exit_code} if done.exit_code else {}
    found |= {"stdout": lines(done.stdout)} if done.stdout else {}
    return found | ({"stderr": lines(done.stderr)} if done.stderr else {})


def _names(help_lines: list[str]) -> list[str]:
    """Return the commands that a help lists: the words after a box's border, without options."""
    listed = help_lines[next((at for at, line in enumerate(help_lines) if "─ Commands" in line), len(help_lines)) :]
    return [line.split()[1] for line in listed if line.startswith("│ ") and line[2] not in " -"]
