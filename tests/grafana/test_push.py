"""Pushing into a Grafana that answers as its API documents: everything once, nothing twice, and plain refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tomllib

from dashboards.source.__main__ import generated
from tests.fixtures.ports import free_port
from tests.grafana.peer import Grafana
from trmon.domain.errors import Conflict, Forbidden, InvalidInput, NotReady, TrmonError, Unauthenticated
from trmon.grafana.api import grafana as opened
from trmon.grafana.push import FOLDER_UID, Change, Pushed, push, shipped


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    with Grafana() as peer:
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
def test_something_else_is_there(grafana: Grafana, tmp_path: Path, page: str | None) -> None:
    if page is not None:
        settings = tmp_path / "api" / "frontend" / "settings"
        settings.parent.mkdir(parents=True)
        settings.write_text(page)
    with files_served(tmp_path) as url:
        assert "pass the URL of Grafana itself by --url" in refused(grafana, NotReady, url=url)


def test_what_is_no_address(grafana: Grafana) -> None:
    refused(grafana, InvalidInput, url="grafana:3000")


@contextmanager
def files_served(folder: Path) -> Iterator[str]:
    """Serve a folder's files, as some other server would, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


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
