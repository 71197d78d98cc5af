"""Secrets of a trainer reach no disk, connection, answer or page."""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.client.trainer import batch, settings
from tests.core.test_redaction import with_secrets
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon_client.config.settings import ClientSettings
from trmon_client.core import wire
from trmon_client.monitor import Monitor

ANSWERS = (
    *("runs", "runs/math/grpo", "runs/math/grpo/diagnosis", "runs/math/grpo/notes", "runs/math/grpo/policies", "fleet"),
    *("runs/math/grpo/report.html", "alerts", "silences", "compare?runs=math/grpo,math/old", "audit"),
    "runs/math/grpo?include=diagnosis,alerts,policies,attempts,notes,adaptation",
)
PLACES = ("owner", "tags", "pause", "error", "note", "reason", "author")


@dataclasses.dataclass
class Given:
    values: Any
    hf_token: str


class Mapped(Mapping[str, Any]):
    """As OmegaConf's: a mapping that is no dict."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def leaks(markers: list[str], data: bytes) -> list[str]:
    lower = data.lower()
    return [marker for marker in markers if marker[:16].encode() in lower]


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def answers(client: httpx.Client) -> bytes:
    """Return all that the service says of its runs, and their alerts, page and metrics."""
    found = [client.get(f"/api/v1/{path}") for path in ANSWERS] + [client.get("/metrics")]
    assert {answer.status_code for answer in found} <= {200, 404}, [answer.text for answer in found]
    assert "learning_rate" in found[1].text
    return b"".join(answer.content for answer in found)


def config_of(choice: random.Random, markers: list[str]) -> Any:
    """Return a trainer's configuration: mappings, objects and lists with secrets at random places."""
    markers += (own := [f"token{choice.randrange(10**20):020}7"])
    some = [with_secrets(choice, markers) for _ in range(6)]
    return {
        "learning_rate": 1e-6,
        "eos_token": "</s>",
        "a": some[0],
        "b": argparse.Namespace(c=some[1]),
        "d": Given(some[2], own[0]),
        "e": Mapped({"f": some[3]}),
        "g": (some[4], some[5]),
    }


def line(choice: random.Random, markers: list[str]) -> str:
    """Return a text of one line with a secret."""
    markers.append(f"word{choice.randrange(10**20):020}7")
    return choice.choice(["hf_{}", "redis://:{}@h", "HF_TOKEN={}", "login --password {}"]).format(markers[-1])


def crash(given: ClientSettings, *, pause: str, error: str) -> None:
    with Monitor(given) as monitor:
        for step in range(3):
            monitor.log_batch(step=step, **batch(seed=step))
        monitor.pause(pause)
        raise RuntimeError(error)


def test_no_secret_leaves_the_trainer(tmp_path: Path, service: ThreadedService, capfd: Any) -> None:
    choice, markers = random.Random(0), list[str]()
    texts = {place: line(choice, markers) for place in PLACES}
    for url in (None, service.url):
        given = settings(
            tmp_path, url=url, config=config_of(choice, markers), owner=texts["owner"], tags=[texts["tags"]], run="grpo"
        )
        with pytest.raises(RuntimeError):
            crash(given, pause=texts["pause"], error=texts["error"])
        if url is None:
            assert everything_in(tmp_path / "spool")
            assert leaks(markers, everything_in(tmp_path / "spool")) == []
    with service.client() as client:
        eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "crashed")
        run = "/api/v1/runs/math/grpo"
        assert client.post(f"{run}/notes", json={"text": texts["note"], "author": texts["author"]}).status_code == 201
        change = {"policy": "geo_mask", "reason": texts["reason"]}
        assert client.put(f"{run}/policy", json=change).status_code == 200
        assert leaks(markers, answers(client)) == []
    service.stop()
    assert leaks(markers, everything_in(service.data_dir)) == []
    assert leaks(markers, "".join(capfd.readouterr()).encode()) == []


@pytest.mark.parametrize("media_type", [wire.MSGPACK, wire.JSON])
def test_what_an_older_client_sends_is_stored_without_secrets_and_known_again(
    service: ThreadedService, media_type: str
) -> None:
    choice, markers = random.Random(media_type), list[str]()
    origin = {"attempt": "first", "launch": "launch", "project": "math", "run": "grpo"}
    config = {"learning_rate": 1e-6, "all": [with_secrets(choice, markers) for _ in range(8)]}
    lost = wire.Losses(warnings={"kind": line(choice, markers)}, refused_policies={"hash": line(choice, markers)})
    sent = [
        wire.Start(**origin, config=config, owner=line(choice, markers), tags=[line(choice, markers)]),
        wire.Pause(**origin, sequence=1, reason=line(choice, markers)),
        wire.Finish(**origin, sequence=2, error=line(choice, markers), traceback=line(choice, markers), losses=lost),
    ]
    with service.client() as client:
        for outcome in ("stored", "duplicate"):
            for message in sent:
                body = wire.encode(message, media_type=media_type)
                answer = client.post(
                    "/api/v1/runs/math/grpo/reports", content=body, headers={"Content-Type": media_type}
                )
                assert msgspec.convert(answer.json(), wire.Ack).status == outcome if media_type == wire.JSON else True
        eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")
        assert leaks(markers, answers(client)) == []
    service.stop()
    assert leaks(markers, everything_in(service.data_dir)) == []
