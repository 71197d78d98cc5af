"""/metrics: metric names, limits, runs that drop out, and a real Prometheus that scrapes and is queried."""

from __future__ import annotations

import math
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.prometheus import binary, prometheus, query, scraping
from tests.fixtures.running_service import OwnRun, Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, corrupt, send, send_step, train
from tests.fixtures.views import view_of
from tests.fixtures.waiting import eventually
from tests.store.builders import alert, batch
from trmon.domain.access import Scope
from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.health.judgement import RunVerdict, Urgency, VerdictKind
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.incidents.incident import CAUSE_LABEL, LAST_GOOD_LABEL, Incident
from trmon.domain.pipeline.publish import Outlook
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.fleet.verdicts import JudgedRun
from trmon.metrics.counters import DROPPED, Counters
from trmon.metrics.exposition import Exposition, sample_line
from trmon_client.core import wire
from trmon_client.error_guard import LossReason

OF_MISMATCH = {CAUSE_LABEL: "engine_mismatch", LAST_GOOD_LABEL: "39"}
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series, labels = found.setdefault(sample.name, {}), tuple(sorted(sample.labels.items()))
            assert labels not in series, f"{sample.name}{labels} twice: Prometheus would drop one"
            series[labels] = sample.value
    return found


def scraped(client: httpx.Client, *, step: int, key: RunKey = MATH) -> Samples:
    """Wait until a run has closed a step, and return the metrics."""
    labels = (("project", key.project), ("run", key.run))
    return eventually(
        lambda: samples(client.get("/metrics").text), lambda found: found.get("trmon_step", {}).get(labels) == step
    )


def test_increases_of_clients_losses_are_counted(run: OwnRun) -> None:
    for dropped in (2, 5, 5):
        run.send(wire.Heartbeat(**ORIGIN, losses=wire.Losses({"queue_full": dropped})))
    found = samples(run.client.get("/metrics").text)
    assert found["trmon_dropped_total"][("reason", "queue_full"),] == 5


def test_every_counter_starts_at_zero_so_that_its_first_increase_is_visible() -> None:
    sampled = {family.name for family in Counters().registry.collect() if family.samples}
    counted = {family.name for family in Counters().registry.collect()}
    of_projects = {"trmon_quota_refused", "trmon_quota_limit", "trmon_quota_used"}
    assert sampled == counted - of_projects, "a project has series from the moment that it has a quota"


def test_every_loss_reason_of_the_client_starts_at_zero() -> None:
    assert set(DROPPED) == {loss.value for loss in LossReason} | {"unplaced_scalar", "other"}


def test_decisions_that_replay_cannot_reproduce_are_counted(run: OwnRun) -> None:
    run.send(wire.Start(**ORIGIN))
    run.send(report(step=0, policy=run.get("/policy")["hash"], accepted=b"\x0e"))
    send_step(run.client, run.key, step=1)
    found = scraped(run.client, step=0, key=run.key)
    assert found["trmon_decision_mismatch_total"][()] == 1


def test_reports_are_counted_and_settings_add_signals_and_the_address_of_the_page(serve: Serve) -> None:
    added = ("staleness_kl_k2", "bound_adaptive", "reward_mean", "reward_mean", "mask_rate")
    with serve(metrics_signals=added, public_url="http://localhost:8642/").client() as client:
        train(client)
        found = scraped(client, step=2)
    assert found["trmon_reports_total"][("status", "stored"),] == 5
    assert found.keys() >= {"trmon_staleness_kl_k2", "trmon_bound_adaptive", "trmon_reward_mean"}
    assert all(dict(labels)["policy"] for labels in found["trmon_mask_rate"])
    [labels] = found["trmon_info"]
    assert dict(labels) == {"version": version("trmon"), "page_url": "http://localhost:8642"}


def test_runs_and_scalars_are_limited_and_omitted_runs_counted(serve: Serve) -> None:
    with serve(metrics_max_runs=1, metrics_max_scalars=2).client() as client:
        train(client, RunKey("code", "ppo"), steps=[0])
        send(client, MATH, report(columns(), scalars=dict.fromkeys("edcba", 1.0)))
        send(client, MATH, wire.Finish(**ORIGIN, sequence=0, finished=[wire.ChunkCount(1, None, 1)]))
        found = scraped(client, step=1)
        assert found["trmon_runs_omitted"][()] == 1
        assert [dict(labels)["run"] for labels in found["trmon_step"]] == ["grpo"]
        assert {dict(labels)["name"] for labels in found["trmon_scalar"]} == {"a", "b"}


def test_a_projects_token_sees_its_runs_but_not_the_services_metrics(admin: httpx.Client) -> None:
    train(admin, MATH)
    train(admin, RunKey("code", "ppo"))
    token = make_token(admin, "prometheus", Scope.READ, project="code")
    found = samples(admin.get("/metrics", headers=bearer(token)).text)
    assert {dict(labels)["project"] for labels in found["trmon_step"]} == {"code"}
    assert "trmon_reports_total" not in found


def an_exposition(**changed: Any) -> Exposition:
    return Exposition(**{"rules": builtin_rules, "extra_signals": (), "max_runs": 500, "max_scalars": 32, **changed})


def test_the_lines_of_a_run_change_with_its_view() -> None:
    exposition, view = an_exposition(), view_of(1, last_report_at=1.0)
    assert " 1.0\n" in exposition.text([view], project=None)
    later = replace(view, run=replace(view.run, last_report_at=2.0))
    found = samples(exposition.text([later], project=None))
    assert list(found["trmon_last_report_timestamp_seconds"].values()) == [2.0]


def with_label(found: Samples, metric: str, label: str, *, run: str) -> dict[str, float]:
    """Return the values of a run's samples by one of their labels."""
    of_run = ((dict(labels), value) for labels, value in found[metric].items() if dict(labels)["run"] == run)
    return {labels[label]: value for labels, value in of_run}


def test_shared_lines_have_the_labels_and_values_of_each_run() -> None:
    rules = builtin_rules().rules
    quiet, failing = view_of(1, name="quiet"), view_of(2, name="failing")
    firing_alert = alert(run_id=2, rule=rules[0].name, severity=Severity.INFO)
    resolved_alert = alert(run_id=2, rule=rules[1].name, state=AlertState.RESOLVED)
    failing = replace(
        failing,
        run=replace(failing.run, state=RunState.STALLED),
        alerts=(firing_alert, resolved_alert),
    )
    found = samples(an_exposition().text([quiet, failing], project=None))
    for run, state, firing in (
        ("quiet", "running", {}),
        ("failing", "stalled", {rules[0].name: 1.0}),
    ):
        assert with_label(found, "trmon_alert_active", "rule", run=run) == firing
        assert with_label(found, "trmon_run_state", "state", run=run) == {state: 1.0}
    severities = {dict(labels)["rule"]: dict(labels)["severity"] for labels in found["trmon_alert_active"]}
    assert severities[rules[0].name] == "info", "an alert keeps the severity that it started with"


def test_rules_whose_alerts_join_the_incident_are_of_kind_health() -> None:
    rules = builtin_rules().rules
    view = replace(view_of(1), alerts=tuple(alert(run_id=1, rule=rule.name) for rule in rules))
    found = samples(an_exposition().text([view], project=None))
    kinds = {dict(labels)["rule"]: dict(labels)["kind"] for labels in found["trmon_alert_active"]}
    assert kinds == {rule.name: "health" if rule.is_of_health else "operation" for rule in rules}
    assert (kinds["mask_rate"], kinds["crashed"]) == ("health", "operation")


def test_an_open_incident_shows_where_it_began_and_its_cause() -> None:
    incident = alert(run_id=1, rule=INCIDENT_RULE, severity=Severity.WARN, step=40)
    led = replace(incident, labels=OF_MISMATCH)
    ill, well = view_of(1, name="ill"), view_of(2, name="well")
    for open_now, expected in ((led, {"engine_mismatch": 40.0}), (replace(led, state=AlertState.RESOLVED), {})):
        found = samples(an_exposition().text([replace(ill, alerts=(open_now,)), well], project=None))
        shown = {dict(labels)["cause"]: value for labels, value in found.get("trmon_incident_since_step", {}).items()}
        assert shown == expected
        for labels in found.get("trmon_incident_since_step", {}):
            of_incident = {"severity": "warn", "cause": "engine_mismatch"}
            assert dict(labels) == {"project": "math", "run": "ill"} | of_incident


def test_a_verdict_has_its_cause_its_steps_and_the_state_of_its_incident() -> None:
    opened = alert(run_id=1, rule=INCIDENT_RULE, severity=Severity.WARN, step=40)
    incident = Incident(alert=replace(opened, labels=OF_MISMATCH))
    over = Incident(alert=replace(incident.alert, state=AlertState.RESOLVED))
    problem = RunVerdict(kind=VerdictKind.WATCH, why="engine mismatch", since_step=40, cause="engine_mismatch")
    ill = JudgedRun(verdict=problem, need=Urgency.SOON, outlook=Outlook(), incident=incident)
    run = (("project", "math"), ("run", "grpo"))
    for judged, state in (
        (ill, "open"),
        (replace(ill, is_acked=True), "acknowledged"),
        (replace(ill, incident=over), "ended_with_run"),
    ):
        found = samples(an_exposition().text([view_of(1)], project=None, verdicts={1: judged}))
        [labels] = found["trmon_run_verdict"]
        assert dict(labels) == dict(run) | {
            "verdict": "watch",
            "need": "soon",
            "cause": "engine_mismatch",
            "counts_as": "to watch",
        }
        assert (found["trmon_run_since_step"], found["trmon_run_last_good_step"]) == ({run: 40.0}, {run: 39.0})
        [labels] = found["trmon_incident_state"]
        assert dict(labels) == dict(run) | {"severity": "warn", "state": state}


def test_a_healthy_run_has_no_series_of_problems() -> None:
    well = JudgedRun(
        verdict=RunVerdict(kind=VerdictKind.HEALTHY, why="no finding"), need=Urgency.NONE, outlook=Outlook()
    )
    view = view_of(1, last_report_at=1.0)
    found = samples(an_exposition().text([view], project=None, verdicts={1: well}))
    shown = {"trmon_run_verdict", "trmon_run_state", "trmon_last_report_timestamp_seconds", "trmon_threshold"}
    assert found.keys() == shown | {"trmon_runs_omitted"}


def test_the_verdict_is_the_one_of_the_fleet(run: OwnRun) -> None:
    client, project = run.client, run.key.project
    run.train()
    corrupt(client, RunKey(project, "ill"))

    def of_both() -> dict[str, tuple[str, ...]]:
        found = samples(client.get("/metrics").text)["trmon_run_verdict"]
        return {
            shown["run"]: (shown["verdict"], shown["need"]) for shown in map(dict, found) if shown["project"] == project
        }

    fleet = eventually(
        lambda: client.get("/api/v1/fleet", params={"project": project}).json()["items"],
        lambda items: (
            all("not diagnosed yet" not in run["verdict"]["why"] for run in items)
            and any(run["verdict"]["kind"] == "act" for run in items)
        ),
    )
    expected = {run["run"]: (run["verdict"]["kind"], run["verdict"]["need"]) for run in fleet}
    assert expected["ill"] == ("act", "now")
    assert eventually(of_both, lambda found: found == expected)
    found = samples(client.get("/metrics").text)
    assert with_label(found, "trmon_incident_state", "state", run="ill") == {"open": 1.0}
    identity = next(run["incident"]["identity"] for run in fleet if run["run"] == "ill")
    answer = client.post(f"/api/v1/alerts/{identity}/ack", json={"note": "seen"})
    assert answer.is_success, answer.text
    found = samples(client.get("/metrics").text)
    assert with_label(found, "trmon_incident_state", "state", run="ill") == {"acknowledged": 1.0}


def test_metrics_go_on_without_verdicts_while_the_database_cannot_be_read(service: ThreadedService) -> None:
    with service.client() as client:
        train(client)
        assert "trmon_run_verdict" in scraped(client, step=2)
        with closing(sqlite3.connect(service.data_dir / "trmon.sqlite")) as database:
            database.execute("ALTER TABLE alert RENAME TO alert_away")
            found = samples(client.get("/metrics").text)
            database.execute("ALTER TABLE alert_away RENAME TO alert")
        assert "trmon_step" in found
        assert "trmon_run_verdict" not in found
        later = samples(client.get("/metrics").text)
        assert later["trmon_verdict_failures_total"][()] == 1
        assert "trmon_run_verdict" in later


def test_reloaded_rules_appear_at_once() -> None:
    active = [builtin_rules()]
    exposition = an_exposition(rules=lambda: active[-1])
    view = replace(view_of(1), alerts=tuple(alert(run_id=1, rule=rule.name) for rule in active[0].rules))
    without = overlay_rules(builtin_rules(), "[{name: crashed, disabled: true}]")
    for rules in (builtin_rules(), without):
        active.append(rules)
        found = samples(exposition.text([view], project=None))
        assert with_label(found, "trmon_alert_active", "rule", run="grpo").keys() == rules.by_name.keys()


def test_the_risk_is_past_once_the_reward_has_collapsed() -> None:
    view = view_of(1)
    row = batch(BatchKey(1, 3, None), run_id=1, ordinal=1, signals={RISK: 0.5})
    for state, values in ((AlertState.RESOLVED, [0.5]), (AlertState.FIRING, [])):
        collapsed = replace(view, row=row, alerts=(alert(run_id=1, rule="reward_collapse", state=state),))
        found = samples(an_exposition().text([collapsed], project=None))
        assert list(found.get("trmon_collapse_risk", {}).values()) == values


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, 1e-300])
def test_every_number_and_label_can_be_parsed_back(value: float) -> None:
    name = 'a"b\\c\nd'
    [(labels, read)] = samples(f"# TYPE x gauge\n{sample_line('x', {'name': name}, value)}")["x"].items()
    assert read == value or (math.isnan(read) and math.isnan(value))
    assert dict(labels) == {"name": name}


@pytest.mark.slow
@pytest.mark.server("prometheus")
def test_prometheus_scrapes_with_a_token_and_is_queried(
    tmp_path: Path, service: ThreadedService, admin: httpx.Client
) -> None:
    train(admin, steps=range(3))
    token = make_token(admin, "prometheus", Scope.READ)
    with prometheus(tmp_path, scraping(service.url, token=token)) as api:
        expression = 'trmon_step{project="math",run="grpo"} == 2'
        [step] = eventually(lambda: query(api, expression), timeout_seconds=60.0)
        # A scrape that was too slow leaves nothing until the next one.
        [finished] = eventually(lambda: query(api, "trmon_run_state == 1"))
        targets = eventually(lambda: api.get("/api/v1/targets").json()["data"]["activeTargets"])
    instance = service.url.removeprefix("http://")
    labels = {"job": "trmon", "project": "math", "run": "grpo", "instance": instance}
    assert step["metric"] == {"__name__": "trmon_step", **labels}
    assert finished["metric"]["state"] == "finished"
    assert [target["lastError"] for target in targets] == [""]


@pytest.mark.slow
@pytest.mark.server("promtool")
def test_promtool_finds_no_problem(client: httpx.Client) -> None:
    train(client, steps=range(2))
    text = client.get("/metrics").text
    checked = subprocess.run(
        [binary("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
