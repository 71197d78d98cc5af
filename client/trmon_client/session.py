"""A session: what a monitor holds in one process; a forked child gets its own."""

from __future__ import annotations

import itertools
import operator
import os
import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from trmon_client.config.launcher import launch_id
from trmon_client.config.settings import ClientSettings, Mode
from trmon_client.core import wire
from trmon_client.core.columns.columns import Columns
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.token_decision import apply_token_rules_to_inputs
from trmon_client.core.statistics import columns_of_inputs
from trmon_client.deciding.active_policies import ActivePolicies
from trmon_client.deciding.advice_cache import AdviceCache
from trmon_client.deciding.attached_divergences import attach_divergences
from trmon_client.deciding.counted_tokens import CountedTokens
from trmon_client.deciding.decision import BatchDecision
from trmon_client.deciding.tensor_spec import TensorSpec
from trmon_client.process.exit_hooks import ExitHooks
from trmon_client.process.ranks import Ranks, discover_ranks
from trmon_client.safety import first_report
from trmon_client.safety.error_guard import ErrorGuard
from trmon_client.sending import message_builders
from trmon_client.sending.chunk_counter import ChunkCounter
from trmon_client.sending.encoder import Encoder

_SEQUENCES = itertools.count()
"""Numbers the messages of this process: several monitors may share one launch."""

_ENDED: Counter[Hashable] = Counter()
"""How many monitors have ended in this process, by run, rank and launcher's id: the next one numbers chunks anew."""


class Session:
    """Decides, numbers and hands over.

    Its sender starts when the trainer first speaks: until then a fork is harmless, and only then the trainer's
    process group is known.
    """

    def __init__(self, settings: ClientSettings, *, policy: Policy, is_fork: bool) -> None:
        self.pid = os.getpid()
        self.is_fork = is_fork
        self.error_guard = ErrorGuard()
        self.policies = ActivePolicies(policy, losses=self.error_guard.losses, notices=self.error_guard.notices)
        self._settings = settings
        self._ranks = Ranks()
        self._chunks = ChunkCounter()
        self._advice_cache = AdviceCache()
        # A signal's handler may call in the middle of a call: of the same thread, it must not wait for itself.
        self._lock = threading.RLock()
        self._unstarted: Encoder | None = None
        self._sender: Encoder | None = None
        self._exit_watch: ExitHooks | None = None

    @property
    def has_spoken(self) -> bool:
        """Whether anything was handed to the sender."""
        return self._sender is not None

    def log_batch(
        self,
        arguments: Mapping[str, Any],
        *,
        logits: Mapping[str, Any],
        step: int,
        update: int | None,
        scalars: Mapping[str, Any] | None,
        chunks: int | None,
    ) -> BatchDecision:
        """Decide on a call's sequences and leave its report. Errors: ValueError for arguments that cannot be."""
        step = _count("step", step)
        update = None if update is None else _count("update", update)
        inputs = check_inputs(**arguments)
        columns = attach_divergences(columns_of_inputs(inputs), inputs=inputs, logits=logits)
        verdict, tokens = self.policies.decide(columns, step=step), None
        if verdict.policy.tokens:
            tokens = apply_token_rules_to_inputs(verdict.policy, inputs)
            columns = tokens.attached_to(columns)
        sender = self._speak()
        with self._lock:
            chunk = self._chunks.next(step, update, chunks=chunks)
            draft = message_builders.report_message(
                columns, verdict, chunk=chunk, mode=self._settings.mode, scalars=scalars, losses=self.error_guard.losses
            )
            if sender.put(draft):
                self._chunks.stated(chunk.finished)
        self._introduce(columns, step)
        counted = CountedTokens.of(inputs)
        return BatchDecision(
            spec=TensorSpec.of(arguments),
            error_guard=self.error_guard,
            counted_tokens=lambda: counted,
            is_enforced=self._settings.mode is Mode.ENFORCE,
            columns=columns,
            verdict=verdict,
            tokens=tokens,
            advice=self._advice_cache.at(step) if self._ranks.rank == 0 else None,
        )

    def log_scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Leave the trainer's own numbers of a step."""
        step, losses = _count("step", step), self.error_guard.losses
        self._speak().put(message_builders.scalars_message(step, values, sequence=next(_SEQUENCES), losses=losses))

    def pause(self, reason: str) -> None:
        """Leave word of a silence on purpose."""
        self._speak().put(message_builders.pause_message(reason, sequence=next(_SEQUENCES)))

    def finish(self, error: BaseException | None, *, timeout_seconds: float) -> None:
        """Leave word of the end, and close."""
        sender = self._speak()
        with self._lock:
            self._chunks.finish()
            finished = self._chunks.owed()
        sender.close(
            timeout_seconds, last=message_builders.finish_message(error, sequence=next(_SEQUENCES), finished=finished)
        )
        self._end()

    def leave(self, *, timeout_seconds: float) -> None:
        """Close without a word: send what waits, spool what is left."""
        if self._sender is not None:
            self._sender.close(timeout_seconds)
        self._end()

    def _speak(self) -> Encoder:
        with self._lock:
            if self._sender is None:
                sender = self._made()
                sender.start()
                sender.put(message_builders.start_message(self._settings, self._ranks, sequence=next(_SEQUENCES)))
                self._sender, self._exit_watch = sender, self._watch_exits()
            return self._sender

    def _made(self) -> Encoder:
        """Kept where it cannot be started, as without a free thread: certificates are loaded once, not at each call."""
        if self._unstarted is None:
            self._ranks = discover_ranks(self._settings)
            self._unstarted = Encoder(
                self._settings,
                self._ranks,
                is_fork=self.is_fork,
                n_before=_ENDED[self._place],
                hear=self._hear,
                error_guard=self.error_guard,
            )
        return self._unstarted

    def _watch_exits(self) -> ExitHooks:
        seconds = self._settings.limits.exit_timeout_seconds

        def crash(error: BaseException) -> None:
            self.error_guard.guard(lambda: self.finish(error, timeout_seconds=seconds), otherwise=None)

        return ExitHooks(crash=crash, leave=lambda: self.leave(timeout_seconds=seconds))

    def _end(self) -> None:
        if self._exit_watch is not None:
            self._exit_watch.end()
            self._exit_watch = None
            _ENDED[self._place] += 1

    @property
    def _place(self) -> Hashable:
        settings = self._settings
        return settings.project, settings.run, self._ranks.rank, launch_id(settings.launcher)

    def _introduce(self, columns: Columns, step: int) -> None:
        if self._ranks.rank == 0:
            line = first_report.first_report_line(self._settings, columns, policy=self.policies.current.name, step=step)
            self.error_guard.notices.say("first report", line)

    def _hear(self, ack: wire.Ack) -> None:
        if ack.policy is not None:
            self.policies.offer(ack.policy)
        if ack.advice is not None:
            self._advice_cache.hear(ack.advice)


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, and is {type(value).__name__}") from error
    if number < 0:
        raise ValueError(f"{name} must be zero or more, and is {number}")
    return number
