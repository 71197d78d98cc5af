"""`Service` against a running service: what people read and change from Python."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import corrupt, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon_client.api import NotFoundError, RequestRefused, Service
from trmon_client.core import wire

ILL, FINE = RunKey("math", "ill"), RunKey("math", "fine")
N_STEPS = 12


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    service = ThreadedService(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def client(running: ThreadedService) -> Iterator[httpx.Client]:
    """What trainers send by, each test to runs of its own."""
    with running.client() as client:
        yield client


@pytest.fixture(scope="module")
def watched(running: ThreadedService, client: httpx.Client) -> Iterator[Service]:
    """A service with a run whose log-probs are corrupt from the start, and a finished one."""
    train(client, FINE, steps=range(N_STEPS))
    corrupt(client, ILL)
    eventually(lambda: client.get("/api/v1/runs/math/ill").json()["status"]["verdict"]["kind"] == "act")
    with Service(running.url) as service:
        yield service


def test_runs_are_described(watched: Service) -> None:
    assert [run.name for run in watched.runs("math")] == ["math/ill", "math/fine"]
    assert [run.name for run in watched.runs("math", state="finished", tag="dapo", owner="me")] == ["math/fine"]
    assert list(watched.runs(archived=True)) == list(watched.runs("code")) == []
    fine = watched.run("math/fine")
    assert (fine.last_step, fine.config, fine.end_phrase) == (N_STEPS - 1, {"lr": 1e-3}, None)
    states = [(run.name, run.state) for run in watched.statuses("math")]
    assert states == [("math/ill", "running"), ("math/fine", "finished")]


def test_what_is_wrong_with_a_run_is_one_story(watched: Service) -> None:
    status, found = watched.status("math/ill"), watched.diagnosis("math/ill")
    assert (status.verdict.kind, status.verdict.need) == ("act", "now")
    lead = found.findings[0]
    assert (lead.finding, lead.title, found.since_step) == ("corrupt_logprobs", "corrupt log-probs", 0)
    evidence = {item.signal: item for item in lead.evidence}
    assert evidence["invalid_fraction"].value > evidence["invalid_fraction"].limit
    assert found.incident.fix == found.remedy.first
    (incident,) = watched.incidents(project="math")
    assert incident in [*watched.alerts(run="math/ill", state="firing")]
    assert "corrupt_logprobs" in [alert.rule for alert in status.alerts]
    assert list(watched.alerts(run="math/fine", state="firing")) == []
    rule = next(rule for rule in watched.rules() if rule.name == "stale_rollouts")
    assert (rule.is_finding, rule.clauses[0].id) == (True, "pearson")


def test_signals_are_columns_by_step(watched: Service) -> None:
    assert {"mask_rate", "lr"} <= {*watched.signal_names("math/fine")}
    history = watched.signals("math/fine", ["lr", "total_kl_k3"], (3, 5))
    assert (history.exact, len(history), history.step.tolist()) == (True, 3, [3, 4, 5])
    assert history["lr"].tolist() == [1e-3] * 3
    assert [*history.columns()] == ["step", "attempt_id", "update", "closed_at", "count", "lr", "total_kl_k3"]
    assert len(watched.signals("math/fine", "lr")) == N_STEPS
    assert watched.signals("math/fine", "lr", (None, 1)).step.tolist() == [0, 1]
    assert watched.signals("math/fine", "lr", (90, None))["lr"].tolist() == []


def test_fewer_points_have_the_range_of_their_steps(watched: Service) -> None:
    every = watched.signals("math/fine", "total_kl_k3")["total_kl_k3"]
    few = watched.signals("math/fine", "total_kl_k3", points=2)
    band = few.bands["total_kl_k3"]
    assert (few.exact, few.count.tolist()) == (False, [6, 6])
    assert [band.min[0], band.max[1]] == [every[:6].min(), every[6:].max()]
    assert [*few.columns()][-4:] == [f"total_kl_k3.{name}" for name in ("last", "mean", "min", "max")]


def test_a_signal_that_is_unknown_is_nan_and_infinite_ones_stay(client: httpx.Client, watched: Service) -> None:
    key = RunKey("numbers", "grpo")
    send(client, key, wire.Start(**ORIGIN))
    for step, value in enumerate(["inf", None, "-inf", 1.0]):
        scalars: dict[str, wire.JsonNumber] = {"loss": value}
        send(client, key, wire.Scalars(**ORIGIN, sequence=step, step=step, values=scalars))
        send_step(client, key, step=step)
    found = eventually(lambda: watched.signals(str(key), "loss", (0, 2)), lambda history: len(history) == 3)
    np.testing.assert_array_equal(found["loss"], [np.inf, np.nan, -np.inf])


def test_runs_are_compared_step_by_step(watched: Service) -> None:
    found = watched.compare(["math/fine", "math/ill"], "mask_rate", (3, None))
    last = watched.signals("math/ill", "mask_rate").step[-1]
    assert found.step.tolist() == list(range(3, N_STEPS))
    ill = found.values["math/ill"]["mask_rate"]
    assert np.isfinite(ill[: last - 2]).all()
    assert np.isnan(ill[last - 2 :]).all()
    assert [*found.columns()] == ["step", "math/fine mask_rate", "math/ill mask_rate"]


def test_a_what_if_tells_what_another_policy_would_have_masked(watched: Service) -> None:
    strict = {"name": "strict", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}
    found = watched.what_if("math/fine", strict, (2, 5))
    assert (found.policy, found.range.n_steps, found.total.n_sequences) == ("strict", 4, 16)
    assert (found.total.mask_rate, found.reasons) == (1.0, {"mean_k3": 16})
    assert watched.what_if("math/fine", "geo_mask", max_steps=2).range.n_steps == 2
    assert watched.policy("math/fine").name


def test_notes_are_written_read_and_deleted(watched: Service) -> None:
    first = watched.add_note("math/fine", "restarted", author="ana")
    second = watched.add_note("math/fine", "lr raised", step=2)
    assert [*watched.notes("math/fine")] == [second, first]
    assert (first.step, first.author, second.step, second.author) == (None, "ana", 2, "local")
    watched.delete_note("math/fine", first.id)
    assert [*watched.notes("math/fine")] == [second]


def test_a_run_is_deleted(client: httpx.Client, watched: Service) -> None:
    train(client, RunKey("deleted", "grpo"))
    watched.delete("deleted/grpo")
    assert list(watched.runs("deleted")) == []


class SmallAnswers(Service):
    """Asks for a few items and rows at a time."""

    page_items = 2
    max_rows = 10


def test_lists_are_read_page_by_page(client: httpx.Client, running: ThreadedService) -> None:
    for number in range(5):
        send(client, RunKey("lists", f"run-{number}"), wire.Start(**ORIGIN))
    with SmallAnswers(running.url) as reader:
        runs = reader.runs("lists")
        assert next(runs).name == "lists/run-4"
        assert [run.name for run in runs] == [f"lists/run-{number}" for number in (3, 2, 1, 0)]


def test_a_long_history_is_read_to_its_end_in_order(client: httpx.Client, running: ThreadedService) -> None:
    n_steps = 3 * SmallAnswers.max_rows + 3
    train(client, RunKey("long", "grpo"), steps=range(n_steps))
    with SmallAnswers(running.url) as reader:
        history = reader.signals("long/grpo", ["total_kl_k3", "lr"])
        part = reader.signals("long/grpo", "lr", (5, 20))
        batches = list(reader.batches("long/grpo"))
    with Service(running.url) as reader:
        at_once = reader.signals("long/grpo", ["total_kl_k3"])
    assert history.exact
    assert history.step.tolist() == list(range(n_steps))
    assert history["total_kl_k3"].tolist() == at_once["total_kl_k3"].tolist()
    assert part.step.tolist() == list(range(5, 21))
    steps = [(batch.step, batch.ordinal, batch.update) for batch in batches]
    assert steps == [(step, step + 1, None) for step in range(n_steps)]
    assert batches[0].scalars == {"lr": 1e-3}
    assert math.isnan(batches[0].signals["step_seconds"])


def test_a_wrong_name_is_told_with_those_there_are(watched: Service) -> None:
    with pytest.raises(NotFoundError, match="no run 'math/fin'; did you mean math/fine") as told:
        watched.diagnosis("math/fin")
    assert (told.value.status, str(told.value).count("did you mean")) == (404, 1)
    with pytest.raises(RequestRefused, match="'mask_rat' is not a known signal; did you mean mask_rate"):
        watched.signals("math/fine", "mask_rat")
    with pytest.raises(ValueError, match="run must be PROJECT/RUN, not 'fine'"):
        watched.run("fine")


@pytest.mark.parametrize("name", ["../alerts", "math/..", "math/fine/attempts", "math/fine?x", "math/fine\n"])
def test_a_name_cannot_lead_to_another_path_of_the_service(watched: Service, name: str) -> None:
    with pytest.raises(ValueError, match="run must be PROJECT/RUN"):
        watched.delete(name)


def test_the_environment_names_the_service(watched: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_URL", watched.url)
    monkeypatch.setenv("TRMON_TOKEN", "no space")
    with pytest.raises(ValueError, match="TRMON_TOKEN"):
        Service()
    monkeypatch.delenv("TRMON_TOKEN")
    with Service() as service:
        assert service.run("math/fine").name == "math/fine"
    monkeypatch.delenv("TRMON_URL")
    with pytest.raises(ValueError, match=r"pass Service\(url=...\) or set TRMON_URL"):
        Service()


def test_sequences_of_a_step_have_their_decisions(watched: Service) -> None:
    found = watched.sequences("math/fine", 3, ["n_tokens", "reward"], first=1, limit=2)
    assert (found.first, found.n_sequences, set(found.columns)) == (1, 4, {"n_tokens", "reward"})
    assert len(found.columns["n_tokens"]) == len(found.decisions[0].accepted) == 2
    assert found.decisions[0].role == "active"
    assert "n_tokens" in watched.sequences("math/fine", 3).columns
