"""The answers and the refusals of the tools of `trmon mcp`, asked with the SDK's own client."""

from __future__ import annotations

from typing import Any

from tests.fixtures.assistant import Assistant, connected
from tests.guards.golden_files import plain
from tests.guards.recorded_service import CRASHED, DRIFTING, ENFORCED, HEALTHY, RUNS, SCALARS
from trmon.assistants.server import build_server
from trmon_client.api import Service

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


def answers(url: str) -> dict[str, dict[str, Any]]:
    """Return the answers by tool, and what the server says of itself."""
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
