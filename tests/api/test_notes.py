"""Notes over HTTP: written by admins, read by readers."""

from __future__ import annotations

import httpx

from tests.fixtures.messages import ORIGIN
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send
from trmon.domain.access import Scope
from trmon_client.core import wire

NOTES = "/api/v1/runs/math/grpo/notes"


def test_a_reader_reads_and_an_admin_writes(admin: httpx.Client, service: ThreadedService) -> None:
    send(admin, MATH, wire.Start(**ORIGIN))
    token = make_token(admin, "reader", Scope.READ)
    with service.client(headers={"Authorization": f"Bearer {token}"}) as reader:
        assert reader.post(NOTES, json={"text": "x"}).status_code == 403
        assert admin.post(NOTES, json={"text": "x"}).json()["author"] == "root"
        [note] = reader.get(NOTES).json()["items"]
        assert reader.delete(f"{NOTES}/{note['id']}").status_code == 403
