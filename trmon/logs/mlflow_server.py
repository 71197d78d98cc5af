"""A run of an MLflow server, by the address of its page or of the tracking server: copied into a file of JSON Lines."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from trmon.domain.errors import InvalidInput
from trmon.logs.mlflow_store import unpacked

_RUN = re.compile(r"(?P<server>https?://[^#?]+?)/(?:#/.*)?\bruns/(?P<id>[0-9a-f]{32})")
_PAGE_VALUES = 25_000
TIMEOUT_SECONDS = 60.0


def copy_run(url: str, file: Path) -> None:
    """Write the metrics of a run as one JSON object a step, with the time of its first metric; the last value counts.

    `MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`, are sent as MLflow does.
    Errors: InvalidInput if the address names no run, or the server does not answer with one.
    """
    found = _RUN.match(url)
    if found is None:
        raise InvalidInput(url, "names no run of MLflow; copy the address of the run's page (.../runs/ID)")
    steps: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    try:
        with _client(found["server"]) as client:
            run = client.get("/runs/get", params={"run_id": found["id"]}).raise_for_status().json()["run"]
            for name in [metric["key"] for metric in run["data"].get("metrics", ())]:
                for value in _history(client, found["id"], name):
                    step = int(value.get("step", 0))
                    row = steps[step]
                    row.setdefault("step", step)
                    row.setdefault("_timestamp", int(value["timestamp"]) / 1000)
                    row[name] = unpacked(float(value["value"]))
    except httpx.HTTPError as error:
        raise InvalidInput(url, f"cannot be read from MLflow: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(url, "does not answer as an MLflow server does") from error
    file.write_text("".join(json.dumps(steps[step]) + "\n" for step in sorted(steps)))


def _client(server: str) -> httpx.Client:
    given = os.environ
    headers = {"Authorization": f"Bearer {token}"} if (token := given.get("MLFLOW_TRACKING_TOKEN")) else {}
    user = given.get("MLFLOW_TRACKING_USERNAME")
    auth = (user, given.get("MLFLOW_TRACKING_PASSWORD", "")) if user and not headers else None
    return httpx.Client(base_url=f"{server}/api/2.0/mlflow", headers=headers, auth=auth, timeout=TIMEOUT_SECONDS)


def _history(client: httpx.Client, run_id: str, name: str) -> Iterator[dict[str, Any]]:
    page: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _PAGE_VALUES}
    while True:
        answer = client.get("/metrics/get-history", params=page).raise_for_status().json()
        yield from answer.get("metrics", ())
        if not answer.get("next_page_token"):
            return
        page["page_token"] = answer["next_page_token"]
