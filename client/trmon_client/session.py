"""The state of a monitor in one process: decides on batches, queues messages; a forked child gets its own."""

from __future__ import annotations

import itertools
import operator
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trmon_client.active_policies import ActivePolicies, AdviceCache, TrainerAdvice
from trmon_client.batch_decision import BatchDecision, CountedTokens, DecidedBatch, TensorSpec
from trmon_client.batch_statistics import BatchStatistics
from trmon_client.config.settings import ClientSettings, Mode, launch_id
from trmon_client.core import wire
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import GivenBatch
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.token_decision import apply_token_rules_to_inputs
from trmon_client.error_guard import ErrorGuard, RejectedSteps
from trmon_client.findings_tracker import FindingsTracker
from trmon_client.logprob_checks import GivenPolicies, MistakeChecks
from trmon_client.process.exit_hooks import ExitHooks
from trmon_client.process.identity import Ranks, discover_ranks
from trmon_client.process.process_end import ProcessEnd
from trmon_client.recording import Recorder
from trmon_client.sending import messages
from trmon_client.sending.encoder import LONGEST_SECONDS, Encoder
from trmon_client.sending.messages import ChunkCounter, ChunkPlace

WANTED = {
    "sum_logp_rollout": "rollout_logprobs=",
    "sum_logp_old": "old_logprobs=",
    "sum_logp": "logprobs=",
    "advantage": "advantages=",
    "reward": "rewards=",
    "group_id": "group_ids=",
    "version_min": "versions=",
}
"""The argument of `log_batch` that provides each column."""

LOGPROBS = tuple(argument for column, argument in WANTED.items() if column.startswith("sum_logp"))


def first_report_line(settings: ClientSettings, columns: Columns, *, policy: str, step: int) -> str:
    """Return the line without a line break."""
    given = [argument for column, argument in WANTED.items() if column in columns]
    if not columns.pairs:
        policies = [argument for argument in given if argument in LOGPROBS]
        return _line(
            settings,
            step,
            f"nothing to compare: {f'only {policies[0]} is given' if policies else 'no log-probs are given'}, and a "
            f"pair needs two of {' '.join(LOGPROBS)}",
            f"policy {policy} does not apply: every sequence that is not empty is accepted",
            "the run is judged by its scalars, rewards and lengths",
        )
    missing = [argument for argument in WANTED.values() if argument not in given]
    if "version_min" in columns and columns.trainer_version is None:
        missing.append("trainer_version=")
    return _line(
        settings,
        step,
        f"pairs {', '.join(pair for pair in PAIRS if pair in columns.pairs)}",
        f"mode {settings.mode.value}, policy {policy}",
        f"missing: {' '.join(missing)}" if missing else "nothing missing",
    )


def scalars_only_line(settings: ClientSettings, values: Mapping[str, Any], *, step: int) -> str:
    """Return the line about a trainer that has logged scalars of two steps and no batch, without a line break."""
    captured = messages.capture_scalars(values)
    numbers, others = (
        ", ".join(sorted(str(name) for name, value in captured.items() if (value is None) is is_other))
        for is_other in (False, True)
    )
    return _line(
        settings,
        step,
        f"scalars only: {numbers or 'none'}{f' (left out, not numbers: {others})' if others else ''}",
        f"the run is judged by them; agreement of the policies is not measured: pass {' '.join(LOGPROBS)} to log_batch",
    )


def _line(settings: ClientSettings, step: int, *parts: str) -> str:
    to = settings.page_url or f"no url (TRMON_URL): reports go to {settings.run_spool_dir} for `trmon ingest`"
    return "; ".join([f"{settings.project}/{settings.run} step {step}", *parts, to])


_SEQUENCES = itertools.count()
"""Numbers the messages of this process: several monitors may share one launch."""

_ENDED: Counter[Hashable] = Counter()
"""How many monitors have ended in this process, by run, rank and launch: the next one numbers its chunks from 0."""

LOCK_TIME_PART = 0.25
"""The part of the timeout of `finish` that another thread's unfinished call may take."""


@dataclass(frozen=True, slots=True, eq=False)
class LoggedBatch:
    """One call of `log_batch`, unchecked."""

    step: Any
    update: Any
    chunks: Any
    tensors: GivenBatch
    logits: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, Any] | None = None
    texts: Sequence[str] | None = None


class Session:
    """Decides on batches, numbers their chunks and queues their reports.

    The encoder's thread starts with the trainer's first call: until then a fork is harmless, and only then is the
    trainer's process group known.
    """

    make_encoder: Callable[..., Encoder] = Encoder

    def __init__(self, settings: ClientSettings, *, policy: Policy, is_fork: bool) -> None:
        self.pid = os.getpid()
        self.is_fork = is_fork
        self.error_guard = ErrorGuard()
        self.policies = ActivePolicies(policy, error_guard=self.error_guard)
        self._settings = settings
        self._statistics = BatchStatistics(triton=settings.triton, warn=self.error_guard.warn_once.warn)
        self._ranks = Ranks()
        self._chunks = ChunkCounter()
        self._given = GivenPolicies(self.error_guard.warn_once)
        self._mistakes = MistakeChecks(self.error_guard)
        self._rejected = RejectedSteps(self.error_guard.warn_once)
        self.advice_cache = AdviceCache(asks_to_save=settings.checkpoint_on_warning)
        self._saved: dict[int, str] = {}
        name = settings.tracker if not is_fork else None
        self._tracker = None if name is None else FindingsTracker(name, self.error_guard)
        # Reentrant: a signal handler may call in the middle of a call.
        self._lock = threading.RLock()
        self._unstarted: Encoder | None = None
        self._encoder: Encoder | None = None
        self._exit_hooks: ExitHooks | None = None
        self._recorder: Recorder | None = None
        self._newest_step = -1
        self._n_calls = 0
        self._is_first_report = True
        self._scalars_step: int | None = None
        self._said_scalars_only = False
        self._newest_scalars_step = -1

    @property
    def has_started(self) -> bool:
        """Whether the trainer has logged anything."""
        return self._encoder is not None

    @property
    def n_ranks(self) -> int:
        """The number of data-parallel ranks, 1 before the trainer has logged."""
        return self._ranks.world_size

    def log_batch(self, batch: LoggedBatch, *, is_closed: bool = False) -> BatchDecision:
        """Decide on a call's sequences and queue its report unless closed. Errors: ValueError for invalid arguments."""
        step = _count("step", batch.step)
        update = None if batch.update is None else _count("update", batch.update)
        chunks = None if batch.chunks is None else _count("chunks", batch.chunks, least=1)
        decided, advice = self._decide(batch, step=step), None
        if not is_closed:
            advice = self._report(batch, decided, step=step, update=update, chunks=chunks)
        counted = CountedTokens.of(decided.inputs)
        return BatchDecision(
            spec=TensorSpec.of(batch.tensors),
            error_guard=self.error_guard,
            counted_tokens=lambda: counted,
            is_enforced=self._settings.mode is Mode.ENFORCE,
            columns=decided.columns,
            verdict=decided.verdict,
            tokens=decided.tokens,
            advice=advice,
        )

    def _report(
        self, batch: LoggedBatch, decided: DecidedBatch, *, step: int, update: int | None, chunks: int | None
    ) -> TrainerAdvice | None:
        """Queue and record what was decided, and return the advice on the step."""
        encoder = self._ensure_started()
        with self._lock:
            self._check_order(step)
            chunk = self._chunks.next(step, update, chunks=chunks)
            message = messages.report_message(
                decided,
                chunk=chunk,
                mode=self._settings.mode,
                scalars=batch.scalars,
                on_finite=self._given.learn,
                on_values=self._mistakes.see,
                error_guard=self.error_guard,
                rejected=self._rejected,
            )
            if encoder.put(message):
                self._chunks.mark_reported(chunk.finished)
            advice = self.advice_cache.at(step) if self._ranks.rank == 0 else None
        self._log_first_report(decided.columns, step)
        self._record(decided, chunk, batch)
        return advice

    def log_scalars(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Queue the trainer's own numbers of a step; None is the newest batch's, or counts in a run without batches."""
        losses = self.error_guard.losses
        if step is None:
            step = self._newest_step if self._n_calls else self._newest_scalars_step + 1
        step = _count("step", step)
        self._newest_scalars_step = max(step, self._newest_scalars_step)
        self._ensure_started().put(messages.scalars_message(step, values, sequence=next(_SEQUENCES), losses=losses))
        self._log_scalars_only(values, step)

    def pause(self, reason: str) -> None:
        """Queue the message that the trainer pauses on purpose."""
        self._ensure_started().put(messages.pause_message(reason, sequence=next(_SEQUENCES)))

    def checkpoint(self, step: int, path: str | os.PathLike[str], *, part: str) -> None:
        """Queue the message that a checkpoint has been saved, on rank 0. Errors: ValueError, TypeError."""
        step, encoder = _count("step", step), self._ensure_started()
        if self._ranks.rank == 0:
            number, secret = next(_SEQUENCES), self._settings.token
            encoder.put(
                messages.checkpoint_message(step, path, part=part, saved=self._saved, sequence=number, secret=secret)
            )

    def finish(self, end: ProcessEnd, *, timeout_seconds: float) -> None:
        """Queue the message that the process ends, and close."""
        self.begin_finish(end, timeout_seconds=timeout_seconds)()

    def begin_finish(self, end: ProcessEnd, *, timeout_seconds: float) -> Callable[[], None]:
        """Queue the message that the process ends; return the wait until all is sent or spooled, or the time is out.

        The update that a failure or a signal cut short has no known count: only `chunks=` says how long it was to be.
        """
        until = time.monotonic() + min(max(0.0, timeout_seconds), LONGEST_SECONDS)
        encoder, finished = self._finished_counts(
            end, timeout_seconds=LOCK_TIME_PART * max(0.0, until - time.monotonic())
        )
        if encoder is None:
            return lambda: None
        last = messages.finish_message(end, sequence=next(_SEQUENCES), finished=finished, secret=self._settings.token)
        encoder.begin_close(max(0.0, until - time.monotonic()), last=last)
        if self._recorder is not None:
            self._recorder.write(end.reason.value)

        def wait() -> None:
            encoder.wait_closed()
            if self._tracker is not None:
                self._tracker.close(max(0.0, until - time.monotonic()))
            if self._recorder is not None:
                left = max(0.0, until - time.monotonic())
                is_closed = end.reason is wire.EndReason.CLOSED
                self._recorder.wait(left if is_closed else max(left, self._settings.limits.record_exit_seconds))
            self._end()

        return wait

    def _decide(self, batch: LoggedBatch, *, step: int) -> DecidedBatch:
        inputs, finite = self._given.select(batch.tensors.checked())
        columns = self._statistics.of(inputs, logits=batch.logits)
        verdict, tokens = self.policies.decide(columns, step=step), None
        if verdict.policy.tokens and columns.pairs:
            tokens = apply_token_rules_to_inputs(verdict.policy, inputs)
            columns = tokens.attached_to(columns)
        self._n_calls += 1
        return DecidedBatch(inputs, finite, self._mistakes.ranges(inputs), columns, verdict, tokens)

    def _finished_counts(
        self, end: ProcessEnd, *, timeout_seconds: float
    ) -> tuple[Encoder | None, list[wire.ChunkCount]]:
        # The thread that holds the lock may wait for a device that never answers.
        if not self._lock.acquire(timeout=timeout_seconds):
            return self._encoder, self._chunks.unreported()
        try:
            encoder = self._ensure_started()
            if end.is_orderly:
                self._chunks.finish()
            return encoder, self._chunks.unreported()
        finally:
            self._lock.release()

    def _ensure_started(self) -> Encoder:
        with self._lock:
            if self._encoder is None:
                encoder = self._unstarted_encoder()
                encoder.start()
                encoder.put(messages.start_message(self._settings, self._ranks, sequence=next(_SEQUENCES)))
                self._encoder, self._exit_hooks = encoder, self._install_exit_hooks()
            if self._exit_hooks is not None:
                self._exit_hooks.forget_exit()
            if self._tracker is not None and self._ranks.rank == 0:
                self._tracker.open()
            return self._encoder

    def _unstarted_encoder(self) -> Encoder:
        """Return the encoder, made once: a call after one without a free thread does not load certificates again."""
        if self._unstarted is None:
            self._ranks = discover_ranks(self._settings)
            if self._settings.record_dir is not None:
                self._recorder = Recorder(self._settings, self._ranks, error_guard=self.error_guard)
            self._unstarted = self.make_encoder(
                self._settings,
                self._ranks,
                is_fork=self.is_fork,
                n_before=_ENDED[self._numbering_key],
                on_ack=self._apply_ack,
                error_guard=self.error_guard,
            )
        return self._unstarted

    def _install_exit_hooks(self) -> ExitHooks:
        seconds = self._settings.limits.exit_timeout_seconds

        def on_end(end: ProcessEnd, waited_seconds: float) -> Callable[[], None]:
            left = seconds - waited_seconds
            guard = self.error_guard.guard
            wait = guard(lambda: self.begin_finish(end, timeout_seconds=left), otherwise=lambda: None)
            return lambda: guard(wait, otherwise=None)

        # The run ends with rank 0: other ranks keep the signal's default action.
        return ExitHooks(on_end, handles_sigterm=self._settings.handles_signals and self._ranks.rank == 0)

    def _end(self) -> None:
        if self._exit_hooks is not None:
            self._exit_hooks.end()
            self._exit_hooks = None
            _ENDED[self._numbering_key] += 1

    @property
    def _numbering_key(self) -> Hashable:
        settings = self._settings
        return settings.project, settings.run, self._ranks.rank, launch_id(settings.launcher)

    def _check_order(self, step: int) -> None:
        if step < self._newest_step:
            self.error_guard.warn_of_misuse(
                "step_went_back",
                f"log_batch got step {step} after step {self._newest_step} within one start of the trainer; rules read "
                "steps in order and do not read an earlier one again: pass a counter that never falls, such as the "
                "optimizer step",
            )
        self._newest_step = max(step, self._newest_step)

    def _log_first_report(self, columns: Columns, step: int) -> None:
        is_first, self._is_first_report = self._is_first_report, False
        if is_first and self._ranks.rank == 0:
            line = first_report_line(self._settings, columns, policy=self.policies.current.name, step=step)
            self.error_guard.warn_once.warn("first report", line)

    def _record(self, decided: DecidedBatch, place: ChunkPlace, batch: LoggedBatch) -> None:
        recorder = self._recorder
        if recorder is not None:
            self.error_guard.guard(
                lambda: recorder.add(
                    decided.inputs,
                    verdict=decided.verdict,
                    place=place,
                    kl_is=decided.columns.kl_is,
                    texts=batch.texts,
                ),
                otherwise=None,
            )

    def _log_scalars_only(self, values: Mapping[str, Any], step: int) -> None:
        """Say that only scalars come, at their second step: those of the first may precede its batch."""
        self._scalars_step = step if self._scalars_step is None else self._scalars_step
        if self._ranks.rank == 0 and self._n_calls == 0 and step != self._scalars_step and not self._said_scalars_only:
            self._said_scalars_only = True
            line = scalars_only_line(self._settings, values, step=step)
            self.error_guard.warn_once.warn("scalars only", line)

    def _apply_ack(self, ack: wire.Ack) -> None:
        if ack.attempt > 1 and self._ranks.rank == 0:
            run = f"{self._settings.project}/{self._settings.run}"
            self.error_guard.warn_once.warn(
                "another attempt", f"{run} exists: this is its attempt {ack.attempt}; a new run needs another run="
            )
        if ack.policy is not None:
            self.policies.offer(ack.policy)
        if ack.advice is not None:
            self.advice_cache.update(ack.advice)
            if self._tracker is not None and self._ranks.rank == 0:
                self._tracker.update(ack.advice)
            if self._recorder is not None:
                self._recorder.update(ack.advice)


def _count(name: str, value: Any, *, least: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, and is {type(value).__name__}") from error
    if number < least:
        raise ValueError(f"{name} must be {('zero', 'one')[least]} or more, and is {number}")
    return number
