"""A Grafana, as far as its HTTP API documents the calls we make: it keeps what it is given and answers accordingly.

Source: Grafana's HTTP API reference: folder, dashboard, authentication.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Json = dict[str, Any]
Answer = tuple[int, Json]

UNAUTHORIZED: Answer = (401, {"message": "Invalid API key", "messageId": "api-key.invalid", "statusCode": 401})


@dataclass
class Grafana:
    """Listens on a free port of 127.0.0.1; `provisioned` are uids of dashboards that came from files."""

    token: str = "glsa_secret"
    version: str = "11.6.0"
    role: str = "Editor"
    provisioned: frozenset[str] = frozenset()
    folders: dict[str, Json] = field(default_factory=dict)
    dashboards: dict[str, Json] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, body: Json) -> Answer:
        """Return the status and the body of an answer."""
        if method != "GET":
            if self.role == "Viewer":
                return 403, {"message": "You'll need additional permissions: folders:create", "accessErrorId": "ACE1"}
            self.writes.append(f"{method} {path}")
        kind, _, rest = path.removeprefix("/api/").partition("/")
        match kind, method:
            case "frontend", "GET":
                return 200, {"buildInfo": {"version": self.version, "edition": "Open Source"}}
            case "folders", "GET":
                return _found(self.folders.get(rest), "folder not found")
            case "folders", "POST":
                self.folders[body["uid"]] = {**body, "id": 1, "version": 1}
                return 200, self.folders[body["uid"]]
            case "dashboards", "GET":
                return _found(self.dashboards.get(rest.removeprefix("uid/")), "Dashboard not found")
            case "dashboards", "POST":
                return self._keep_dashboard(body)
        return 404, {"message": "Not found"}

    def _keep_dashboard(self, body: Json) -> Answer:
        given, uid = body["dashboard"], body["dashboard"]["uid"]
        if uid in self.provisioned:
            return 400, {"message": "Cannot save provisioned dashboard"}
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found", "status": "not-found"}
        before = self.dashboards.get(uid)
        if before is not None and not body.get("overwrite"):
            return 412, {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}
        version = before["dashboard"]["version"] + 1 if before else 1
        meta = {"folderUid": body["folderUid"], "provisioned": False, "version": version}
        self.dashboards[uid] = {
            "dashboard": {**given, "id": len(self.dashboards) + 1, "version": version},
            "meta": meta,
        }
        return 200, {"id": 1, "uid": uid, "url": f"/d/{uid}/x", "status": "success", "version": version}


def _found(thing: Json | None, otherwise: str) -> Answer:
    return (404, {"message": otherwise}) if thing is None else (200, thing)


def _handler(grafana: Grafana) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            known = self.headers.get("Authorization") == f"Bearer {grafana.token}"
            path = self.path.partition("?")[0]
            status, said = grafana.answer(self.command, path, json.loads(body or b"{}")) if known else UNAUTHORIZED
            sent = json.dumps(said).encode()
            self.send_response(HTTPStatus(status))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler
