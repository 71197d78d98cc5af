"""Notes over HTTP: written by admins, read by readers, kept over a restart."""

from __future__ import annotations

import httpx

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


def test_a_reader_reads_and_an_admin_writes(admin: httpx.Client, service: ThreadedService) -> None:
    send(admin, MATH, wire.Start(**ORIGIN))
    token = make_token(admin, "reader", Scope.READ)
    with service.client(headers={"Authorization": f"Bearer {token}"}) as reader:
        assert reader.post(NOTES, json={"text": "x"}).status_code == 403
        assert admin.post(NOTES, json={"text": "x"}).json()["author"] == "root"
        [note] = reader.get(NOTES).json()["items"]
        assert reader.delete(f"{NOTES}/{note['id']}").status_code == 403
