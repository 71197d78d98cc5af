"""Notes over HTTP: written by admins, read by readers, kept over a restart."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send
from trmon.domain.access import Scope
from trmon_client.core import wire

NOTES = "/api/v1/runs/math/grpo/notes"


def test_a_note_is_kept_with_its_author_and_step(client: httpx.Client, service: ThreadedService) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    made = client.post(NOTES, json={"text": " lr raised\nby ana ", "step": 7})
    assert made.status_code == 201, made.text
    note = made.json()
    assert {name: note[name] for name in ("step", "author", "text")} == {
        "step": 7,
        "author": "local",
        "text": "lr raised\nby ana",
    }
    service.restart()
    with service.client() as again:
        assert again.get(NOTES).json() == {"items": [note], "next": None}
        assert again.delete(f"{NOTES}/{note['id']}").status_code == 204
        assert again.get(NOTES).json()["items"] == []
        assert again.delete(f"{NOTES}/{note['id']}").status_code == 404


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"text": "a\x1b[2J"}, "text"),
        ({"text": " "}, "text"),
        ({"text": "x" * 2001}, "text"),
        ({"step": -1}, "step"),
        ({"author": "a\u202eb"}, "author"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_no_note_is_refused_by_field(client: httpx.Client, changed: dict[str, Any], field: str) -> None:
    send(client, MATH, wire.Start(**ORIGIN))
    refused = client.post(NOTES, json={"text": "x"} | changed)
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert client.get(NOTES).json()["items"] == []


def test_a_reader_reads_and_an_admin_writes(admin: httpx.Client, service: ThreadedService) -> None:
    send(admin, MATH, wire.Start(**ORIGIN))
    token = make_token(admin, "reader", Scope.READ)
    with service.client(headers={"Authorization": f"Bearer {token}"}) as reader:
        assert reader.post(NOTES, json={"text": "x"}).status_code == 403
        assert admin.post(NOTES, json={"text": "x"}).json()["author"] == "root"
        [note] = reader.get(NOTES).json()["items"]
        assert reader.delete(f"{NOTES}/{note['id']}").status_code == 403
