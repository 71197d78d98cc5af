"""Pictures of an illness: drawn from the stored history, and served behind a signed link that expires."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.fixtures.running_service import ILL, WELL, RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.notify.posting import ended_ill, notification
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon.domain.alerts.notification import Notification, Picture
from trmon.domain.errors import NotFound
from trmon.domain.findings.story import Story, Strip, story_of
from trmon.domain.severity import Severity
from trmon.notify.pictures import VALID_SECONDS, Pictures, drawn
from trmon.store import Store
from trmon_client.api import SignalBand
from trmon_client.api.signals import SignalSeries

PUBLIC, SECRET, NOW = "https://trmon.example/", "https://hooks.example/T0/B0/secret", 1_800_000_000.0


@pytest.fixture(scope="module")
def stored(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    copy = tmp_path_factory.mktemp("pictures") / "trmon.sqlite"
    copy.write_bytes(recorded.running.read_bytes())
    with closing(Store.open(f"sqlite:///{copy}")) as store:
        yield store


@pytest.fixture(scope="module")
def pictures(stored: Store) -> Pictures:
    return Pictures(stored, public_url=PUBLIC, secret=SECRET)


def told(store: Store, run: str) -> tuple[int, Notification]:
    """Return a run and the notification that its incident fires, with the cause that the judge names."""
    project, _, name = run.partition("/")
    [found] = [one for one in store.runs.list(access=EVERYTHING).items if str(one.key) == f"{project}/{name}"]
    judgement = store.run_snapshots.outlooks([found.id])[found.id].judgement
    lead = judgement.lead
    rule = "none" if lead is None else lead.finding
    cause = structs.replace(ended_ill().cause, rule=rule, title=rule.replace("_", " "))
    return found.id, structs.replace(notification(rule=INCIDENT_RULE, run=found.key), cause=cause)


def picture_of_ill_run(pictures: Pictures, store: Store, *, now: float = NOW) -> Picture:
    picture = pictures.picture_of(*told(store, str(ILL.key)), now=now)
    assert picture is not None
    return picture


def test_the_picture_of_an_ill_run_is_small_says_in_words_what_it_shows_and_a_healthy_run_has_none(
    pictures: Pictures, stored: Store
) -> None:
    from PIL import Image

    picture = picture_of_ill_run(pictures, stored)
    image = Image.open(io.BytesIO(picture.png))
    assert (image.format, image.width) == ("PNG", 960)
    assert len(picture.png) < 60_000
    assert picture.words.startswith("reward and ")
    assert pictures.picture_of(*told(stored, str(WELL.key)), now=NOW) is None


def test_a_link_shows_the_picture_until_it_expires_and_no_other_one_does(pictures: Pictures, stored: Store) -> None:
    picture = picture_of_ill_run(pictures, stored)
    assert picture.url is not None
    name = picture.url.removeprefix("https://trmon.example/pictures/").removesuffix(".png")
    assert pictures.opened(name, now=NOW + VALID_SECONDS - 1) == picture.png
    head, _, signature = name.partition(".")
    forged = ("", ".", head, f"{head}.", f".{signature}", f"{head[:-1]}.{signature}", f"{name}x", f"{head}.{'é' * 9}")
    for other in forged:
        with pytest.raises(NotFound):
            pictures.opened(other, now=NOW)
    with pytest.raises(NotFound):
        pictures.opened(name, now=NOW + VALID_SECONDS)
    with pytest.raises(NotFound):
        Pictures(stored, public_url=PUBLIC, secret="another").opened(name, now=NOW)
    with pytest.raises(NotFound):
        Pictures(stored, public_url=PUBLIC, secret=None).opened(name, now=NOW)


@pytest.mark.parametrize(("public_url", "secret"), [(None, SECRET), (PUBLIC, None)])
def test_a_picture_has_a_link_only_where_one_can_be_signed_and_reached(
    stored: Store, public_url: str | None, secret: str | None
) -> None:
    assert picture_of_ill_run(Pictures(stored, public_url=public_url, secret=secret), stored).url is None


def test_the_link_is_served_without_a_token(recorded: RecordedRuns, tmp_path: Path) -> None:
    service: ThreadedService = recorded.serve(
        recorded.running, tmp_path / "data", slack_url="https://hooks.example/x", public_url="http://127.0.0.1:8642"
    )
    components = service.app.state.components
    picture = picture_of_ill_run(components.pictures, components.store, now=time.time())
    assert picture.url is not None
    path = picture.url.removeprefix("http://127.0.0.1:8642")
    with service.client() as client:
        client.post("/api/v1/tokens", json={"name": "a", "scopes": ["admin"]}).raise_for_status()
        assert client.get("/api/v1/fleet").status_code == 401
        answer = client.get(path)
        refused = client.get(path.replace(".png", "x.png"))
    service.stop()
    assert (answer.status_code, answer.headers["Content-Type"], answer.content) == (200, "image/png", picture.png)
    assert refused.status_code == 404


STORY = Story(
    run_id=1,
    attempt_id=1,
    title="math/" + "a-very-long-name-" * 12 + ": stale rollouts",
    severity=Severity.PAGE,
    strips=(Strip("reward_mean", ()), Strip("mismatch_kl_k3", (0.015,))),
    interval=(3, 5),
    began=4,
    step=9,
)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="no step"),
        pytest.param([0.5], id="one step"),
        pytest.param([np.nan] * 9, id="nothing known"),
        pytest.param([0.5, np.nan, 0.5, np.inf, -np.inf, 0.5], id="gaps and infinite values"),
        pytest.param([1e-300, 1e300], id="a wide range"),
        pytest.param([0.0] * 4, id="level"),
    ],
)
def test_any_history_can_be_drawn(values: list[float]) -> None:
    column = np.array(values)
    n = len(column)
    axis = np.arange(n)
    series = SignalSeries(
        exact=True,
        attempt_id=axis,
        step=axis,
        update=axis,
        closed_at=axis.astype(float),
        count=np.ones(n),
        bands={strip.signal: SignalBand(min=column, max=column, mean=column, last=column) for strip in STORY.strips},
    )
    png = drawn(STORY, series)
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (960, 2 * 322)


def test_a_story_has_the_steps_in_which_the_illness_began_and_limits_on_the_scale_of_a_signal(stored: Store) -> None:
    run_id, _ = told(stored, str(ILL.key))
    judgement = stored.run_snapshots.outlooks([run_id])[run_id].judgement
    signals = stored.signals.names(run_id, access=EVERYTHING)
    story = story_of(judgement, run_id=run_id, title="x", signals=signals)
    assert story is not None
    assert story.interval[0] <= story.began <= story.interval[1] <= story.step
    assert story.strips[0].signal == "reward_mean"
    assert story_of(judgement, run_id=run_id, title="x", signals=()) is None
