"""The state machine: random trainers, faults and workers over the real parts, compared with the model at each step."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.exc import IntegrityError

from tests.domain.trainer import finished, made, report
from tests.fixtures.fuzzing import count_cases
from tests.protocol.model import Acknowledged, Batch, Place, RunModel
from tests.protocol.system import System, Worker
from tests.store.builders import intake
from trmon.domain.messages import PreparedMessage, WriteOutcome

START = 1_700_000_000.0
"""In the past, so that every delivery is due."""
RANKS = 2
FLAPPING = 6
"""From this many transitions on an alert flaps, and its notifications are held."""


@dataclass(frozen=True)
class Sent:
    """A report of a trainer, and where it belongs."""

    run: str
    place: Place
    attempt: str
    is_ill: bool
    stated: tuple[tuple[int, None, int], ...]

    def prepared(self, *, seed: int = 0) -> PreparedMessage:
        """Return the message; another seed is another payload."""
        launch, step, rank, chunk = self.place
        content = made("corrupt" if self.is_ill else "healthy", n=2, length=8, seed=2 * rank + 10 * seed)
        fields = {"rank": rank, "chunk": chunk, "world_size": RANKS, "launch": launch, "attempt": self.attempt}
        return intake(report(step, content=content, finished=finished(*self.stated), **fields), run=self.run)


@dataclass
class Trainer:
    """A trainer of two ranks: the next report of each, and those that no acknowledgement has come for."""

    run: str
    attempt: str = "a"
    n_launches: int = 1
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    unacknowledged: list[Sent] = field(default_factory=list)
    first_step: int = 0

    @property
    def launch(self) -> str:
        return f"{self.run}-launch-{self.n_launches}"

    def report(self, rank: int, *, same_step: bool, is_ill: bool) -> None:
        """Make the next report of a rank: another chunk of its step, or the first one of the next step."""
        stated: tuple[tuple[int, None, int], ...] = ()
        if rank not in self.at:
            step, chunk = self.first_step, 0
        else:
            step, chunk = self.at[rank]
            if same_step:
                chunk += 1
            else:
                stated, step, chunk = ((step, None, chunk + 1),), step + 1, 0
        self.at[rank] = step, chunk
        place = Place(self.launch, step, rank, chunk)
        self.unacknowledged.append(Sent(self.run, place, self.attempt, is_ill, stated))

    def relaunch(self, *, is_new_attempt: bool, goes_back: bool) -> None:
        """Start again after a crash, in a new attempt or the same, at a step that was or was not reported before."""
        self.n_launches += 1
        reached = max((step for step, _ in self.at.values()), default=self.first_step)
        self.first_step = max(0, reached - 1) if goes_back else reached + 1
        self.at = {}
        if is_new_attempt:
            self.attempt = f"attempt-{self.n_launches}"


class Protocol(RuleBasedStateMachine):
    """Two runs, each with a trainer, over a system; subclasses say where its database is."""

    URL: str
    RUNS = ("one", "two")

    @initialize()
    def begin(self) -> None:
        """Start with an empty database and workers that hold leases."""
        count_cases()
        self.system = System(self.URL)
        self.now = START
        self.trainers = {run: Trainer(run) for run in self.RUNS}
        self.models = {run: RunModel() for run in self.RUNS}
        self.acknowledged: dict[Place, Sent] = {}
        self.run_ids: dict[str, int] = {}
        self.may_repeat: Counter[str] = Counter()
        self.unmarked: Counter[str] = Counter()
        for worker in self.workers:
            worker.renew()

    @property
    def workers(self) -> list[Worker]:
        return self.system.workers

    # The trainer.

    @rule(run=st.sampled_from(RUNS), rank=st.integers(0, RANKS - 1), same_step=st.booleans(), is_ill=st.booleans())
    def train(self, run: str, rank: int, same_step: bool, is_ill: bool) -> None:
        """A rank has another report."""
        self.trainers[run].report(rank, same_step=same_step and rank in self.trainers[run].at, is_ill=is_ill)

    @rule(run=st.sampled_from(RUNS), is_ill=st.booleans())
    def train_step(self, run: str, is_ill: bool) -> None:
        """All ranks finish a step, and all that waited is acknowledged."""
        for rank in range(RANKS):
            self.trainers[run].report(rank, same_step=False, is_ill=is_ill)
        self.now += 1.0
        self._send_all(run)

    @rule(run=st.sampled_from(RUNS), i=st.integers(0, 99), is_ack_lost=st.booleans())
    def send(self, run: str, i: int, is_ack_lost: bool) -> None:
        """Send one of the waiting reports, in any order; without its acknowledgement it is sent again later."""
        waiting = self.trainers[run].unacknowledged
        if waiting:
            sent = waiting[i % len(waiting)]
            self._acknowledge(sent)
            if not is_ack_lost:
                waiting.remove(sent)

    @rule(i=st.integers(0, 99), seed=st.integers(0, 1))
    def repeat(self, i: int, seed: int) -> None:
        """Send an acknowledged report again: the same payload is a duplicate, another one a conflict."""
        if not self.acknowledged:
            return
        place, sent = list(self.acknowledged.items())[i % len(self.acknowledged)]
        result = self.system.send(sent.prepared(seed=seed), now=self.now)
        assert result.status is (WriteOutcome.CONFLICT if seed else WriteOutcome.DUPLICATE)
        assert result.id == self.models[sent.run].reports[place].id

    @rule(run=st.sampled_from(RUNS))
    def fail_to_store(self, run: str) -> None:
        """The commit fails: nothing is acknowledged, and the trainer keeps the report."""
        waiting = [sent for sent in self.trainers[run].unacknowledged if sent.place not in self.acknowledged]
        if waiting:
            with self.system.failing_commits(), suppress(IntegrityError):
                self.system.send(waiting[0].prepared(), now=self.now)
                raise AssertionError("acknowledged, though the commit failed")

    @rule(run=st.sampled_from(RUNS), is_new_attempt=st.booleans(), goes_back=st.booleans(), silence=st.booleans())
    def relaunch(self, run: str, is_new_attempt: bool, goes_back: bool, silence: bool) -> None:
        """The trainer crashes and starts again, at once or after its former launch counts as gone."""
        self.now += 100.0 if silence else 0.0
        self.trainers[run].relaunch(is_new_attempt=is_new_attempt, goes_back=goes_back)

    # The service, the clock and the workers.

    @rule()
    def restart_service(self) -> None:
        self.system.restart_service()

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds

    @rule(i=st.integers(0, 1))
    def run_round(self, i: int) -> None:
        """A worker reads what is new, also one whose leases have expired meanwhile."""
        self._worker(i).run_round(self.run_ids.values(), now=self.now)

    @rule(i=st.integers(0, 1))
    def fail_a_round(self, i: int) -> None:
        """A worker's commit fails; it tries again after a pause."""
        with self.system.failing_commits():
            self._worker(i).run_round(self.run_ids.values(), now=self.now)

    @rule(i=st.integers(0, 1), with_checkpoint=st.booleans())
    def kill_worker(self, i: int, with_checkpoint: bool) -> None:
        """A worker ends, with or without time for its checkpoints, and starts again."""
        if with_checkpoint:
            self._worker(i).scheduler.write_checkpoints()
        self._worker(i).kill()

    @rule(i=st.integers(0, 1), n_failures=st.integers(0, 2))
    def deliver(self, i: int, n_failures: int) -> None:
        """A worker's dispatcher sends what is due; the receiver may refuse at first."""
        self.system.inbox.n_failures = n_failures
        self._worker(i).deliver(self.system.inbox)

    @rule(i=st.integers(0, 1), run=st.sampled_from(RUNS), is_ill=st.booleans(), recovers=st.booleans())
    def deliver_unrecorded(self, i: int, run: str, is_ill: bool, recovers: bool) -> None:
        """A process ends between sending and recording: what it has sent, and only that, may be sent again.

        A step of the run precedes it; the run may recover before the next attempt.
        """
        self.train_step(run, is_ill)
        self.run_round(i)
        with self.system.unrecorded_deliveries():
            sent = self._deliver_repeatable(self._worker(i))
        if len(sent) > 1:  # the attempt of those sent in parallel could perhaps not be recorded either
            self.unmarked.update(sent)
        if recovers:
            self.train_step(run, False)
            self.run_round(i)

    @rule(i=st.integers(0, 1))
    def deliver_without_writing(self, i: int) -> None:
        """A dispatcher can write nothing, neither before sending nor after, and ends."""
        with self.system.failing_commits():
            self.unmarked.update(self._deliver_repeatable(self._worker(i)))

    @precondition(lambda self: len(self.workers) > 1)
    @rule(i=st.integers(0, 1))
    def renew(self, i: int) -> None:
        """A worker renews its leases and takes free slots."""
        self._worker(i).renew()

    @precondition(lambda self: len(self.workers) > 1)
    @rule(i=st.integers(0, 1))
    def expire(self, i: int) -> None:
        """A worker is paused until its leases have expired."""
        self.system.expire(self._worker(i))

    @precondition(lambda self: len(self.workers) > 1)
    @rule(i=st.integers(0, 1), after_calls=st.integers(0, 1))
    def lose_leases_in_a_round(self, i: int, after_calls: int) -> None:
        """The other worker takes over and does everything while this one is about to commit."""
        worker = self._worker(i)
        written: list[object] = []

        def take_over() -> None:
            self._take_over(i)
            written.append(self._written())

        worker.interrupt(take_over, after_calls=after_calls)
        worker.run_round(self.run_ids.values(), now=self.now)
        worker.interrupt(lambda: None, after_calls=0)
        assert not written or written == [self._written()], "a worker without its leases writes nothing"

    @precondition(lambda self: len(self.workers) > 1)
    @rule(i=st.integers(0, 1))
    def lose_leases_in_a_delivery(self, i: int) -> None:
        """The other worker takes over and delivers while this one is about to send what it has read."""
        worker = self._worker(i)
        worker.interrupt(lambda: self._take_over(i), after_calls=2)
        worker.deliver(self.system.inbox)
        worker.interrupt(lambda: None, after_calls=0)

    def _deliver_repeatable(self, worker: Worker) -> Counter[str]:
        """Deliver what may be sent again, and return the keys of what was sent."""
        before = self.system.inbox.taken.copy()
        worker.deliver(self.system.inbox)
        sent = self.system.inbox.taken - before
        self.may_repeat.update(sent)
        return sent

    def _written(self) -> object:
        """Return what workers have written about the runs."""
        return [self.system.written(run_id) for run_id in self.run_ids.values()]

    def _take_over(self, i: int) -> None:
        self.system.expire(self._worker(i))
        other = self._worker(i + 1)
        other.renew()
        other.run_round(self.run_ids.values(), now=self.now)
        other.deliver(self.system.inbox)

    def _worker(self, i: int) -> Worker:
        return self.workers[i % len(self.workers)]

    def _send_all(self, run: str) -> None:
        for sent in self.trainers[run].unacknowledged:
            self._acknowledge(sent)
        self.trainers[run].unacknowledged.clear()

    def _acknowledge(self, sent: Sent) -> None:
        """Send a report; it is stored the first time, and a duplicate from then on."""
        prepared = sent.prepared()
        try:
            result = self.system.send(prepared, now=self.now)
        except IntegrityError as error:
            raise AssertionError("a report is refused, though nothing is wrong") from error
        model = self.models[sent.run]
        if sent.place in model.reports:
            assert result.status is WriteOutcome.DUPLICATE, "a report is stored once"
            assert result.id == model.reports[sent.place].id
            return
        assert result.status is WriteOutcome.STORED, "no other report has its place"
        self.run_ids[sent.run] = result.run_id
        self.acknowledged[sent.place] = sent
        batch = Batch(result.attempt_id, sent.place.step)
        model.reports[sent.place] = Acknowledged(
            result.id, batch, prepared.digest, prepared.n_sequences, sent.is_ill, self.now
        )

    # What must hold after each step.

    @invariant()
    def acknowledged_is_durable_and_once(self) -> None:
        """Another connection sees each acknowledged report, unchanged, and no other report."""
        for run, run_id in self.run_ids.items():
            expected = {known.id: (known.batch, known.digest) for known in self.models[run].reports.values()}
            assert self.system.stored_reports(run_id) == expected

    @invariant()
    def rows_and_alerts_follow_from_the_reports(self) -> None:
        """Batches close in order with all their reports, and each change of the alert has one delivery."""
        for run, run_id in self.run_ids.items():
            model = self.models[run]
            model.observe_rows(self.system.rows(run_id), now=self.now)
            assert self.system.changes(run_id) == model.changes
            assert set(self.system.deliveries(run_id)) == set(model.changes)

    @invariant()
    def no_alert_is_told_twice(self) -> None:
        """A receiver takes each notification once, or again if it could not be recorded."""
        for key, n in self.system.inbox.taken.items():
            assert n <= 1 + self.may_repeat[key], f"{key} was sent {n} times"

    @invariant()
    def passes_fail_only_with_the_database(self) -> None:
        """No worker fails for another reason than a commit that could not succeed."""
        for worker in self.workers:
            for failure in worker.observer.failures:
                assert isinstance(failure, IntegrityError), failure

    # The end: everything that waits is done.

    def teardown(self) -> None:
        """Settle, unless a check has failed already, and close everything."""
        try:
            self._settle()
        finally:
            self.system.close()

    def _settle(self) -> None:
        """Send and judge all that waits; nothing is missing, and no alert is untold."""
        for run in self.run_ids:
            self._send_all(run)
        for _ in range(3):
            self.now += 100.0
            for worker in self.workers:
                worker.renew()
            for worker in self.workers:
                worker.run_round(self.run_ids.values(), now=self.now)
                self.rows_and_alerts_follow_from_the_reports()
        for worker in self.workers:
            worker.deliver(self.system.inbox)
        self.no_alert_is_told_twice()
        for run, run_id in self.run_ids.items():
            self.models[run].check_settled(self.system.rows(run_id))
            self._check_told(run, run_id)

    def _check_told(self, run: str, run_id: int) -> None:
        """Each change was sent, or muted: firing late after it had resolved, or resolved though its firing was not.

        One that was sent, but could not be recorded, may be muted when it is due again; the end is sent in any case,
        unless not even the attempt could be recorded.
        """
        deliveries, taken = self.system.deliveries(run_id), self.system.inbox.taken
        told = {change for change, (_, state) in deliveries.items() if state in ("delivered", "standing")}
        changes = self.models[run].changes
        may_be_held = len(changes) >= FLAPPING
        for change, following in pairwise([*changes, None]):
            key, state = deliveries[change]
            if change in told:
                assert taken[key], "recorded, but never sent"
            else:
                assert state == "muted" or (state == "held" and may_be_held), (change, state)
                assert not taken[key] or self.may_repeat[key], "sent, but not recorded"
                assert change.state == "resolved" or following is not None or may_be_held, "never told"
            if change.state == "firing" and following is not None:
                if change not in told and taken[key]:
                    assert following in told or self.unmarked[key], "who heard of an unrecorded firing hears of the end"
                else:
                    assert (following in told) is (change in told), "who heard of the firing hears of the end"
