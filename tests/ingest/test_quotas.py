"""Quotas at the edge of ingest: which messages are admitted, refused for good, or sent again later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from tests.fixtures.loops import run
from tests.fixtures.messages import ORIGIN
from tests.fixtures.trainer import step_report
from trmon.domain.access import EVERYTHING, Access, Quota, QuotaUsage
from trmon.domain.errors import InvalidInput, Overloaded, QuotaExceeded
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.ingest.quotas import QuotaGate
from trmon.metrics.counters import Counters
from trmon_client.core import wire

REPORT_BYTES = 100


class FewQuotas:
    """Quotas and runs in memory."""

    def __init__(self, *quotas: Quota, runs: Sequence[str] = (), report_bytes: int = 0) -> None:
        self.quotas = quotas
        self.runs = set(runs)
        self.report_bytes = report_bytes

    def list(self, *, access: Access) -> tuple[Quota, ...]:
        return self.quotas

    def usage(self, project: str) -> QuotaUsage:
        return QuotaUsage(runs=frozenset(self.runs), report_bytes=self.report_bytes)

    def existing(self, keys: Iterable[RunKey]) -> set[RunKey]:
        return {key for key in keys if key.run in self.runs}


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def gate_of(quotas: FewQuotas, *, clock: Clock | None = None, counters: Counters | None = None) -> QuotaGate:
    gate = QuotaGate(quotas, counters=counters or Counters(), clock=clock or Clock())
    gate.poll()
    return gate


def a_message(message: wire.Message, run_name: str = "grpo", *, project: str = "math") -> PreparedMessage:
    return PreparedMessage(key=RunKey(project, run_name), message=message, digest=b"", payload=b"x" * REPORT_BYTES)


def a_report(run_name: str = "grpo", *, project: str = "math") -> PreparedMessage:
    return a_message(step_report(0), run_name, project=project)


def admitted(gate: QuotaGate, *entries: PreparedMessage | InvalidInput) -> list[bool]:
    return [isinstance(entry, PreparedMessage) for entry in run(gate.admit(entries, access=EVERYTHING))]


def test_a_project_without_a_quota_is_not_limited() -> None:
    gate = gate_of(FewQuotas(Quota(project="code", max_runs=0, max_bytes=0, reports_per_second=0.001)))
    assert admitted(gate, *[a_report()] * 20) == [True] * 20


def test_messages_of_new_runs_above_the_limit_are_refused_with_what_to_do() -> None:
    gate = gate_of(FewQuotas(Quota(project="math", max_runs=2), runs=["old"]))
    assert admitted(gate, *map(a_report, ("new", "old", "third", "new"))) == [True, True, False, True]
    [refusal] = run(gate.admit([a_message(wire.Start(**ORIGIN), "third")], access=EVERYTHING))
    assert isinstance(refusal, QuotaExceeded)
    assert str(refusal) == (
        "project 'math' may store 2 runs: delete runs, or raise max_runs with `PUT /api/v1/quotas/math`"
    )


def test_a_run_that_another_process_created_is_admitted() -> None:
    quotas = FewQuotas(Quota(project="math", max_runs=1), runs=["old"])
    gate = gate_of(quotas)
    quotas.runs = {"grpo"}
    assert admitted(gate, a_report("grpo"), a_report("another")) == [True, False]


def test_reports_above_the_bytes_are_refused_and_notices_and_heartbeats_are_not() -> None:
    gate = gate_of(FewQuotas(Quota(project="math", max_bytes=2 * REPORT_BYTES + 1), runs=["grpo"]))
    assert admitted(gate, *[a_report()] * 3, a_message(wire.Finish(**ORIGIN, sequence=1))) == [True, True, False, True]
    assert admitted(gate, a_message(wire.Heartbeat(**ORIGIN), "unknown")) == [True]


def test_a_measurement_frees_what_was_deleted() -> None:
    quotas, clock = FewQuotas(Quota(project="math", max_bytes=REPORT_BYTES), report_bytes=REPORT_BYTES), Clock()
    gate = gate_of(quotas, clock=clock)
    assert admitted(gate, a_report()) == [False]
    quotas.report_bytes = 0
    clock.now += 5
    gate.poll()
    assert admitted(gate, a_report(), a_report()) == [True, False]


def test_a_changed_quota_keeps_what_was_admitted_until_the_next_measurement() -> None:
    class SlowQuotas(FewQuotas):
        def usage(self, project: str) -> QuotaUsage:
            clock.now += 10
            return super().usage(project)

    clock = Clock()
    quotas = SlowQuotas(Quota(project="math", max_bytes=REPORT_BYTES))
    gate = gate_of(quotas, clock=clock)
    assert admitted(gate, a_report(), a_report()) == [True, False]
    quotas.quotas = (Quota(project="math", max_bytes=2 * REPORT_BYTES),)
    gate.poll()
    assert clock.now == 10, "a measurement of 10 s is repeated after 200 s"
    assert admitted(gate, a_report(), a_report()) == [True, False]


def test_above_the_rate_nothing_of_a_request_is_admitted_and_the_wait_is_named() -> None:
    clock = Clock()
    gate = gate_of(FewQuotas(Quota(project="math", reports_per_second=2.0)), clock=clock)
    assert admitted(gate, *[a_report()] * 8) == [True] * 8, "one bundle may be larger than the rate"
    with pytest.raises(Overloaded, match="raise reports_per_second with `PUT /api/v1/quotas/math`") as refused:
        admitted(gate, a_report())
    assert refused.value.retry_after_seconds == 3.0
    assert admitted(gate, a_message(wire.Finish(**ORIGIN, sequence=1)), a_report(project="code")) == [True, True]
    clock.now += 3.5
    assert admitted(gate, a_report()) == [True]
    with pytest.raises(Overloaded):
        admitted(gate, a_report())


def test_invalid_entries_stay_in_their_place() -> None:
    gate = gate_of(FewQuotas(Quota(project="math", max_runs=0)))
    assert admitted(gate, InvalidInput("run", "wrong"), a_report(project="code"), a_report()) == [False, True, False]


def test_quotas_have_metrics() -> None:
    counters = Counters()
    quota = Quota(project="math", max_runs=1, max_bytes=1000, reports_per_second=5.0)
    gate = gate_of(FewQuotas(quota, runs=["grpo"], report_bytes=7), counters=counters)
    assert admitted(gate, a_report("another")) == [False]

    def value(name: str, resource: str) -> float | None:
        return counters.registry.get_sample_value(name, {"project": "math", "resource": resource})

    assert [value("trmon_quota_limit", one) for one in ("runs", "bytes", "rate")] == [1, 1000, 5]
    assert [value("trmon_quota_used", one) for one in ("runs", "bytes", "rate")] == [1, 7, None]
    assert [value("trmon_quota_refused_total", one) for one in ("runs", "bytes", "rate")] == [1, 0, 0]


def starts(*names: str) -> list[PreparedMessage]:
    return [a_message(wire.Start(**ORIGIN), name) for name in names]


def test_a_caller_that_begins_too_many_runs_is_told_when_to_continue_and_what_to_do() -> None:
    quotas, clock, counters = FewQuotas(runs=["old"]), Clock(), Counters()
    gate = QuotaGate(quotas, counters=counters, new_runs_per_hour=2, clock=clock)
    assert admitted(gate, *starts("a", "a", "b", "old"), a_report("a")) == [True] * 5
    with pytest.raises(Overloaded) as refused:
        admitted(gate, *starts("old", "c"))
    assert refused.value.retry_after_seconds == 1800.0
    assert str(refused.value) == (
        "'local' may begin 2 runs an hour: run math/c can begin later; log to runs that exist, or have the service's "
        "operator raise TRMON_NEW_RUNS_PER_HOUR"
    )
    assert (
        counters.registry.get_sample_value("trmon_quota_refused_total", {"project": "", "resource": "new_runs"}) == 1.0
    )
    assert admitted(gate, *starts("a", "b", "old"), a_message(wire.Heartbeat(**ORIGIN), "d")) == [True] * 4
    clock.now += 1800.0
    assert admitted(gate, *starts("c")) == [True]
    with pytest.raises(Overloaded):
        admitted(gate, *starts("d"))


def test_each_token_begins_its_own_runs_and_a_bundle_takes_it_into_debt() -> None:
    gate = QuotaGate(FewQuotas(), counters=Counters(), new_runs_per_hour=2, clock=Clock())
    one, other = (Access(name=name, scopes=frozenset()) for name in ("one", "other"))
    run(gate.admit(starts("a", "b", "c", "d"), access=one))
    with pytest.raises(Overloaded) as refused:
        run(gate.admit(starts("e"), access=one))
    assert refused.value.retry_after_seconds == 5400.0
    run(gate.admit(starts("e"), access=other))
    run(gate.admit(starts("e"), access=one))


def test_without_a_limit_of_new_runs_none_is_looked_up() -> None:
    class Unread(FewQuotas):
        def existing(self, keys: Iterable[RunKey]) -> set[RunKey]:
            raise AssertionError(keys)

    assert admitted(gate_of(Unread()), *starts("a", "b")) == [True, True]
