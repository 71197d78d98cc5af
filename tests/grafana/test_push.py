"""Pushing into a Grafana that answers as its API documents: everything once, nothing twice, and plain refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomllib

from dashboards.source.__main__ import generated
from tests.fixtures.command import run_here, run_python
from tests.fixtures.http_server import HttpRequest, http_server
from tests.fixtures.ports import free_port
from trmon.domain.errors import Conflict, Forbidden, InvalidInput, NotReady, TrmonError, Unauthenticated
from trmon.grafana.push import FOLDER_UID, Change, Pushed, push, shipped
from trmon.grafana.push import grafana as opened

Json = dict[str, Any]
Answer = tuple[int, Json]

UNAUTHORIZED: Answer = (401, {"message": "Invalid API key", "messageId": "api-key.invalid", "statusCode": 401})


@dataclass
class Grafana:
    """A Grafana, as its HTTP API documents our calls; `provisioned` are uids of dashboards that came from files.

    Source: Grafana's HTTP API reference: folder, dashboard, authentication.
    """

    token: str = "glsa_secret"
    version: str = "11.6.0"
    role: str = "Editor"
    provisioned: frozenset[str] = frozenset()
    folders: dict[str, Json] = field(default_factory=dict)
    dashboards: dict[str, Json] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, asked: HttpRequest) -> tuple[int, bytes]:
        known = asked.headers["Authorization"] == f"Bearer {self.token}"
        path = asked.path.partition("?")[0]
        status, said = self._answer(asked.method, path, json.loads(asked.body or b"{}")) if known else UNAUTHORIZED
        return status, json.dumps(said).encode()

    def _answer(self, method: str, path: str, body: Json) -> Answer:
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


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    peer = Grafana()
    with http_server(peer.answer) as peer.url:
        yield peer


def pushed(grafana: Grafana, *, path: str = "") -> list[Pushed]:
    with opened(f"{grafana.url}{path}", token="glsa_secret") as api:
        return list(push(api, shipped()))


def test_everything_is_created_in_a_folder_of_its_own(grafana: Grafana) -> None:
    made = pushed(grafana)
    assert [one.change for one in made] == [Change.CREATED] * 5
    assert [one.kind for one in made] == ["folder", *["dashboard"] * 4]
    assert grafana.folders.keys() == {FOLDER_UID}
    assert grafana.dashboards.keys() == {*("trmon-fleet", "trmon-run-health", "trmon-acceptance", "trmon-service")}
    assert {kept["meta"]["folderUid"] for kept in grafana.dashboards.values()} == {FOLDER_UID}


def test_a_second_push_writes_nothing(grafana: Grafana) -> None:
    pushed(grafana)
    grafana.writes.clear()
    assert {one.change for one in pushed(grafana)} == {Change.UNCHANGED}
    assert grafana.writes == []


def test_a_dashboard_that_somebody_changed_is_ours_again(grafana: Grafana) -> None:
    pushed(grafana)
    grafana.dashboards["trmon-fleet"]["dashboard"]["title"] = "mine"
    changes = {one.path: one.change for one in pushed(grafana)}
    assert [path for path, change in changes.items() if change is Change.UPDATED] == ["/d/trmon-fleet"]
    assert grafana.dashboards["trmon-fleet"]["dashboard"]["title"] == "trmon / Fleet"


def test_a_dashboard_that_was_moved_comes_back(grafana: Grafana) -> None:
    pushed(grafana)
    grafana.dashboards["trmon-fleet"]["meta"]["folderUid"] = "elsewhere"
    assert Change.UPDATED in {one.change for one in pushed(grafana)}
    assert grafana.dashboards["trmon-fleet"]["meta"]["folderUid"] == FOLDER_UID


def test_an_address_may_end_in_a_slash(grafana: Grafana) -> None:
    assert len(pushed(grafana, path="/")) == 5


def refused(grafana: Grafana, kind: type[TrmonError], *, token: str = "glsa_secret", url: str | None = None) -> str:
    """Return the text of the error of this kind with which a push ends."""
    with pytest.raises(kind) as caught, opened(url or grafana.url, token=token) as api:
        list(push(api, shipped()))
    return str(caught.value)


def test_an_unknown_token_is_refused(grafana: Grafana) -> None:
    error = refused(grafana, Unauthenticated, token="wrong")
    assert "service account" in error
    assert "wrong" not in error


def test_a_token_that_may_not_is_told_which_role_it_needs(grafana: Grafana) -> None:
    grafana.role = "Viewer"
    assert "Editor" in refused(grafana, Forbidden)


def test_an_old_grafana_is_refused_before_anything_is_written(grafana: Grafana) -> None:
    grafana.version = "9.5.21"
    assert "9.5.21" in refused(grafana, NotReady)
    assert grafana.writes == []


def test_a_dashboard_that_came_from_a_file_is_grafanas_to_keep(grafana: Grafana) -> None:
    grafana.provisioned = frozenset({"trmon-fleet"})
    assert "provisioned" in refused(grafana, Conflict)


def test_nobody_there(grafana: Grafana) -> None:
    assert "no Grafana answers" in refused(grafana, NotReady, url=f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("page", [None, "<html>", '{"message": "hello"}', "[]"])
def test_something_else_is_there(grafana: Grafana, page: str | None) -> None:
    with http_server(lambda _: (404, b"") if page is None else (200, page.encode())) as url:
        assert "pass the URL of Grafana itself by --url" in refused(grafana, NotReady, url=url)


def test_what_is_no_address(grafana: Grafana) -> None:
    refused(grafana, InvalidInput, url="grafana:3000")


ROOT = Path(__file__).parents[2]


def test_every_generated_dashboard_is_shipped() -> None:
    names = _shipped_names()
    assert {dashboard["uid"] for dashboard in shipped()} == {f"trmon-{Path(name).stem}" for name in names}


def test_a_wheel_carries_them_where_they_are_looked_for() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    names = _shipped_names()
    assert build["targets"]["wheel"]["force-include"] == {
        f"dashboards/{name}": f"trmon/grafana/dashboards/{name}" for name in names
    }


def _shipped_names() -> list[str]:
    """Return the dashboards over Prometheus; the one over PostgreSQL is imported by hand."""
    return [path for path in generated() if path.endswith(".json") and "/" not in path]


def test_the_command_says_what_became_of_each_thing_and_where_it_is(grafana: Grafana) -> None:
    done = run_here("grafana", "push", "--url", grafana.url, grafana_token="glsa_secret")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["created"] * 5
    assert f"{grafana.url}/d/trmon-fleet" in done.stdout
    again = run_here("grafana", "push", grafana_url=grafana.url, grafana_token="glsa_secret")
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["unchanged"] * 5


def test_without_the_extra_the_command_says_what_brings_it() -> None:
    code = "import sys; sys.modules['grafana_client'] = None; from trmon.cli import app; app()"
    done = run_python(code, "grafana", "push", "--token", "x")
    assert done.returncode == 1
    assert "pip install 'trmon[grafana]'" in done.stderr
