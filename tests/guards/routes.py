"""The answers of every route, of bad requests, of the event stream and of /metrics."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from typing import Any

import httpx

from tests.fixtures.messages import as_json, columns, report
from tests.fixtures.waiting import eventually
from tests.guards.golden_files import VARIES, lines, plain
from tests.guards.recorded_service import CRASHED, DRIFTING, ENFORCED, HEALTHY, RUNS, SCALARS
from trmon.store.rows.mapping import encode_cursor

API = "/api/v1"
TEXT_STARTS = 80
"""How many lines of a long answer that is not JSON are kept."""


def of(run: str, *paths: str) -> list[str]:
    """Return reads of one run."""
    return [f"{API}/runs/{run}{path}" for path in paths]


READS = [
    *("/healthz", "/readyz", f"{API}/rules", f"{API}/rules/file", f"{API}/rules/mask_rate", f"{API}/signals"),
    *(f"{API}/runs", f"{API}/runs?project=math&state=running&tag=dapo&limit=1", f"{API}/runs?archived=true"),
    *(f"{API}/fleet", f"{API}/fleet?brief=true&limit=2", f"{API}/fleet/named?runs={HEALTHY},{DRIFTING}"),
    *(path for run in RUNS for path in of(run, "", "/diagnosis", "/signals/names", "/signals/scalars")),
    *of(DRIFTING, "/attempts", "/batches?limit=1", "/batches?limit=1&order=oldest"),
    *of(DRIFTING, "/batches/20", "/batches/20?update=1", "/batches/20/decisions"),
    *of(DRIFTING, "/batches/20/sequences?first=3&limit=2", "/reasons", "/distribution"),
    *of(DRIFTING, "/distribution?statistic=max_k3&pair=staleness&points=4", "/budget", "/adaptation", "/policy"),
    *of(DRIFTING, "/signals?names=total_kl_k3,mask_rate"),
    *of(DRIFTING, "/signals?names=total_kl_k3&from=8&to=16&points=3&statistics=min,max&digits=3"),
    *of(DRIFTING, "/signals?names=total_kl_k3&from=8&to=10&format=csv", "/policy/history", "/notes", "/report.html"),
    *of(DRIFTING, "/marks", "/runbook"),
    *of(ENFORCED, "/batches/5/decisions", "/batches/5/sequences?limit=1", "/policy", "/reasons", "/budget"),
    *of(SCALARS, "/batches?limit=1", "/budget", "/signals?names=reward_mean", "/report.html"),
    *(f"{API}/alerts", f"{API}/alerts?state=firing&severity=page", f"{API}/alerts?search=stale&limit=1"),
    *(f"{API}/alerts/budget", f"{API}/deliveries/receivers"),
    *(f"{API}/alerts/events?identity=2/incident", f"{API}/deliveries?limit=2", f"{API}/silences", f"{API}/audit"),
    *(f"{API}/quotas", f"{API}/tokens", f"{API}/bounds?horizon=2048&kl_max=0.01&kl_seq=0.3&budget=0.1"),
    f"{API}/compare?runs={HEALTHY},{DRIFTING}&points=3",
]
TIGHT = {"name": "tight", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}
ORIGIN = {"attempt": "first", "launch": "one", "wire": [1, 0]}
REPORT = json.loads(as_json(report(columns(2), step=0)))
COLUMNS = REPORT["columns"]
SCALARS_OF_A_STEP = {"kind": "scalars", **ORIGIN, "step": 1, "sequence": 1, "values": {"lr": 1}}
SILENCE = {"matchers": [{"label": "run", "value": "dr*", "operator": "~"}], "seconds": 3600, "note": "known"}
CHANGES: list[tuple[str, str, Any]] = [
    ("POST", f"{API}/runs/math/posted/reports", REPORT),
    ("POST", f"{API}/runs/math/posted/reports", REPORT),
    ("POST", f"{API}/runs/math/posted/reports", {**REPORT, "columns": {**COLUMNS, "n_tokens": [4, 2]}}),
    ("POST", f"{API}/runs/math/posted/reports", SCALARS_OF_A_STEP),
    ("POST", f"{API}/reports", {"messages": [{**REPORT, "project": "math", "run": "posted", "step": 1}]}),
    ("PATCH", f"{API}/runs/{SCALARS}", {"owner": "cleo", "add_tags": ["late"]}),
    ("PATCH", f"{API}/runs/{SCALARS}", {"archived": True}),
    ("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": "geo_mask", "reason": "long answers", "pinned": True}),
    ("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": TIGHT, "shadows": ["seq_mis"]}),
    ("POST", f"{API}/runs/{DRIFTING}/policy/rollback", {"reason": "too tight"}),
    ("GET", f"{API}/runs/{DRIFTING}/policy/history?limit=2", None),
    ("POST", f"{API}/runs/{DRIFTING}/whatif", {"policy": TIGHT}),
    ("POST", f"{API}/runs/{DRIFTING}/whatif", {"policy": "geo_mask", "from_step": 20, "max_steps": 4}),
    ("PUT", f"{API}/runs/{DRIFTING}/adaptation", {"mode": "recommend", "target_mask_rate": 0.1}),
    ("PUT", f"{API}/runs/{DRIFTING}/adaptation", {"mode": "off"}),
    ("POST", f"{API}/alerts/2/incident/ack", {"author": "ana"}),
    ("POST", f"{API}/alerts/ack", {"identities": ["2/mask_rate", "2/nosuch"]}),
    ("POST", f"{API}/silences/preview", SILENCE),
    ("POST", f"{API}/silences", SILENCE),
    ("GET", f"{API}/silences", None),
    ("DELETE", f"{API}/silences/1", None),
    ("PUT", f"{API}/quotas/math", {"max_runs": 6, "reports_per_second": 50}),
    ("GET", f"{API}/quotas", None),
    ("POST", f"{API}/runs/math/seventh/reports", {"kind": "start", **ORIGIN}),
    ("POST", f"{API}/runs/{DRIFTING}/notes", {"text": "lr raised", "step": 7, "author": "ben"}),
    ("GET", f"{API}/runs/{DRIFTING}/notes", None),
    ("DELETE", f"{API}/runs/{DRIFTING}/notes/1", None),
    ("DELETE", f"{API}/runs/{CRASHED}", None),
    ("GET", f"{API}/audit?limit=20", None),
    ("POST", f"{API}/tokens", {"name": "ci", "scopes": ["admin"]}),
    ("POST", f"{API}/tokens/ci/rotate", {"overlap_hours": 0}),
    ("GET", f"{API}/tokens", None),
    ("DELETE", f"{API}/tokens/ci", None),
]
LONG = "x" * 300
MANY = ",".join(map(str, range(200)))
TAGS = [f"t{i}" for i in range(64)]
VETO = {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_token_veto_threshold": 1e-4}
BAD_READS = [
    *of("math/nosuch", "", "/diagnosis", "/policy", "/signals?names=lr", "/budget"),
    *of(DRIFTING, "/signals", "/signals?names=total_kl_k", "/signals?names=x&points=0", "/nosuch"),
    *of(DRIFTING, f"/signals?names={MANY}", "/signals?names=lr&statistics=median"),
    *of(DRIFTING, "/batches/999", "/batches/x", "/batches?after=zz", "/batches?limit=0"),
    *of(DRIFTING, f"/batches?attempt_id={10**30}"),
    *of(DRIFTING, "/distribution?statistic=mean_k9", "/distribution?pair=both"),
    *of(DRIFTING, "/batches/20/sequences?names=nosuch", "/signals?names=lr&format=xml"),
    *(f"{API}/rules/mask_rat", f"{API}/alerts?state=on", f"{API}/runs?state=up", f"{API}/fleet?limit=x"),
    *(f"{API}/runs?projct=math", f"{API}/rules?limit=5", f"{API}/runs?limit=5&limit=6", f"{API}/runs?limit=5000"),
    f"{API}/runs?after={encode_cursor(1 << 63)}",
    *(f"{API}/compare?runs={runs}" for runs in ("", "a", "a,b", HEALTHY, ",".join(["a/b"] * 9))),
    *(f"{API}/bounds?horizon=8", f"{API}/bounds?horizon=9&kl_max=-1&kl_seq=1"),
    *(f"{API}/bounds?horizon=0&kl_max=-1&kl_seq=1", f"{API}/events?run=math/nosuch", f"{API}/events?run=grpo"),
    *(f"{API}/audit?since=x", f"{API}/deliveries?state=lost", f"{API}/nosuch", f"{API}/runs/a b/c"),
    "/pictures/forged.png",
]
BAD: list[tuple[str, str, Any]] = [
    *(("GET", path, None) for path in BAD_READS),
    *(("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": one}) for one in ("geo_mas", {"name": "x"}, 3, VETO)),
    *(
        ("PUT", f"{API}/runs/{DRIFTING}/policy", {"shadows": one, "policy": "trm"})
        for one in (["trm_max", "wisdom"], ["icepop"])
    ),
    ("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": "trm", "colour": 1}),
    ("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": {**TIGHT, "criteria": [{"statistic": "mean_k9", "upper": 1}]}}),
    ("PUT", f"{API}/runs/{DRIFTING}/policy", {"policy": "geo_mask", "replaces": "beef"}),
    ("POST", f"{API}/runs/{DRIFTING}/policy/rollback", {"hash": "beef"}),
    ("PUT", f"{API}/runs/{DRIFTING}/adaptation", {"mode": "auto"}),
    ("PUT", f"{API}/runs/{DRIFTING}/adaptation", {"mode": "recommend", "target_mask_rate": 2}),
    ("POST", f"{API}/runs/{DRIFTING}/whatif", {"policy": "geo_mask", "max_steps": 0}),
    *(("POST", f"{API}/runs/{DRIFTING}/notes", body) for body in ({}, {"text": ""}, {"text": "x", "step": -1})),
    *(("PATCH", f"{API}/runs/{DRIFTING}", body) for body in ({}, {"tags": [LONG]}, {"name": "a/b"}, {"owner": LONG})),
    *(
        ("PATCH", f"{API}/runs/{DRIFTING}", {"add_tags": tags, "remove_tags": ["a"]})
        for tags in (["a"], ["no name"], TAGS)
    ),
    ("POST", f"{API}/silences", {"matchers": [], "seconds": 1}),
    ("POST", f"{API}/silences", {"matchers": [{"label": "colour", "value": "red"}], "seconds": -1}),
    ("DELETE", f"{API}/silences/99", None),
    ("POST", f"{API}/tokens", {"name": "x", "scopes": []}),
    ("POST", f"{API}/tokens", {"name": "", "scopes": ["write"]}),
    ("PUT", f"{API}/quotas/math", {"max_runs": -1}),
    ("POST", f"{API}/alerts/9/x/ack", {}),
    ("POST", f"{API}/rules/mask_rate/whatif", {"limit_id": "nosuch", "limit": 1}),
    ("DELETE", f"{API}/runs/math/nosuch", None),
    ("POST", f"{API}/runs/a%20b/c/reports", {"kind": "start", **ORIGIN}),
    ("POST", f"{API}/runs/math/posted/reports", {"kind": "nosuch", **ORIGIN}),
    ("POST", f"{API}/runs/math/posted/reports", {"kind": "start", **ORIGIN, "wire": [9, 0]}),
    ("POST", f"{API}/runs/math/posted/reports", {**REPORT, "step": -1}),
    ("POST", f"{API}/runs/math/posted/reports", {**REPORT, "columns": {"n_tokens": [1]}}),
    ("POST", f"{API}/reports", {"messages": [{"kind": "start"}]}),
    ("POST", f"{API}/reports", "text"),
    ("POST", f"{API}/reports?run=grpo", {"messages": []}),
    ("DELETE", f"{API}/rules", None),
    ("GET", "/nosuch", None),
    ("POST", "/healthz", None),
]


def documented(client: httpx.Client) -> dict[str, Any]:
    """Return each route of the OpenAPI document with its parameters."""
    paths = client.get(f"{API}/openapi.json").json()["paths"]
    return {
        f"{method.upper()} {path}": sorted(one["name"] for one in route.get("parameters", []))
        for path, methods in paths.items()
        for method, route in methods.items()
    }


def reads(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Return the answers of the reads by noun."""
    return _by_noun(client, [("GET", path, None) for path in READS])


def settle(client: httpx.Client) -> None:
    """Wait until the service has nothing left to do, so that its reads are answered alike twice."""
    said = [reads(client)]

    def is_settled() -> bool:
        said.append(reads(client))
        time.sleep(0 if said[-1] == said[-2] else 1)
        return said[-1] == said[-2]

    eventually(is_settled)


def changes(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Return the answers of the changes by noun; they end with an admin token, which is revoked in the end."""
    return _by_noun(client, CHANGES)


def refusals(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Return the answers of bad requests by noun."""
    return _by_noun(client, BAD)


def _by_noun(client: httpx.Client, requests: list[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for method, path, body in requests:
        answer = client.request(method, path, json=body)
        if path.startswith(f"{API}/tokens") and method == "POST" and answer.is_success:
            client.headers["Authorization"] = f"Bearer {answer.json()['secret']}"
        told = f"{method} {path.replace(LONG, '<long>').replace(MANY, '<many>')}" + (
            "" if body is None else f" {json.dumps(body)[:120]}"
        )
        noun = found[noun_of(path)]
        told += " again" * sum(other.startswith(told) for other in noun)
        noun[told] = {"status": answer.status_code, "answer": _content(answer)}
    return dict(found)


def noun_of(path: str) -> str:
    """Return the noun of a path: what follows a run, or the first word."""
    words = path.partition("?")[0].removeprefix(API).strip("/").split("/")
    return words[3].removesuffix(".html") if words[0] == "runs" and len(words) > 3 else words[0]


def _content(answer: httpx.Response) -> Any:
    kind = answer.headers.get("content-type", "")
    if answer.content and "json" in kind:
        return plain(answer.json())
    return [kind, *lines(_unstyled(answer.text))[:TEXT_STARTS]] if answer.content else None


def _unstyled(page: str) -> str:
    """Return the words of a page, one element a line."""
    words = re.sub(r"\s*<[^>]+>\s*", "\n", re.sub(r"<(style|script)[\s\S]*?</\1>", "", page))
    return re.sub(r"\n+", "\n", words).strip()


def events(client: httpx.Client) -> dict[str, Any]:
    """Return the events of a run that a reader gets who resumes from the start: a count by kind, and the first.

    All have come by the second time that the stream says how far the judging is behind.
    """
    kinds: list[str] = []
    examples: dict[str, Any] = {}
    url = f"{API}/events?run={SCALARS}"
    with client.stream("GET", url, headers={"Last-Event-ID": "0"}, timeout=60) as answer:
        kind = ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
                kinds.append(kind)
                if kinds.count("judging") == 2:
                    break
            elif name == "data":
                examples.setdefault(kind, plain(json.loads(value)))
    return {
        kind: {"count": kinds.count(kind), "first": examples[kind]} for kind in sorted(examples.keys() - {"judging"})
    }


def metrics(client: httpx.Client) -> dict[str, Any]:
    """Return the series of /metrics with their values; what a clock or the machine decides has none."""
    found: dict[str, Any] = {}
    for line in client.get("/metrics").text.splitlines():
        series, _, value = line.rpartition(" ")
        if line.startswith("#"):
            found[" ".join(line.split()[:3])] = line.split(maxsplit=3)[3]
        elif "_bucket{" in series:
            found[series.partition("{")[0]] = VARIES
        else:
            of_clock = series.startswith(("process_", "python_")) or re.search(
                r"_seconds|_bytes|trmon_queue_depth|trmon_event_loop_stalls|trmon_reports_total", series
            )
            found[series] = VARIES if of_clock else float(f"{float(value):.9g}")
    return found
