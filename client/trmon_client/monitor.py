"""The monitor that a trainer calls, and `init`, which makes it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from trmon_client.active_policies import AdviceCache
from trmon_client.batch_decision import BatchDecision
from trmon_client.batch_statistics import given_logits
from trmon_client.config.settings import ClientSettings, Mode, OnIncident, resolve_settings
from trmon_client.core.columns import Columns
from trmon_client.core.inputs.checked_inputs import GivenBatch
from trmon_client.core.policies.policy import Policy
from trmon_client.core.wire import EndReason
from trmon_client.error_guard import ErrorGuard
from trmon_client.process.process_end import ProcessEnd
from trmon_client.session import LoggedBatch, Session

AnyMonitor = TypeVar("AnyMonitor", bound="Monitor")
SEVERAL_RANKS = (
    "on_incident= is not called by log_batch where a run has several ranks, which must agree before one acts: call "
    "trmon_client.advice.requests_at_step on every rank, and act on what it returns"
)


def call_on_incident(act: OnIncident, incident: Mapping[str, Any], error_guard: ErrorGuard) -> None:
    """Call the trainer's function; an exception in it is said once, on the run too, and the training goes on."""
    try:
        act(incident)
    except Exception as error:  # noqa: BLE001  the trainer's own function may raise anything
        text = f"on_incident raised {type(error).__name__}: {error}; the training continues"
        error_guard.warn_of_misuse("on_incident", text)


class Monitor:
    """Reports one run from one process; made by `trmon_client.init`.

    Only the first call of `log_batch` may raise: later failures are counted and reported, and return a neutral
    decision. After `close()` a call sends nothing, which is said once and counted; `log_batch` still decides, by the
    last policy, since the training may continue. Nothing is sent, and no thread starts, before the trainer first logs.
    Any thread may call, several at once too: each call of `log_batch` is a chunk of its step and update, and steps
    must not go back.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._incidents_step: int | None = None
        self._sessions: dict[int, Session] = {}
        self._begin_session(settings.policy, is_fork=False)
        self._is_first_batch = True
        self._is_closed = settings.mode is Mode.OFF

    def __repr__(self) -> str:
        settings = self.settings
        to = settings.page_url or settings.run_spool_dir
        return f"<Monitor {settings.project}/{settings.run}, {settings.mode.value}, {to}>"

    def __copy__(self: AnyMonitor) -> AnyMonitor:
        return self

    def __deepcopy__(self: AnyMonitor, _memo: object) -> AnyMonitor:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings: a spawned child reports on its own, as a forked one does.

        The token is for such a child alone: a pickle may also be a checkpoint.
        """
        token = self.settings.token if get_spawning_popen() is not None else None
        settings = replace(self.settings, token=token, on_incident=None)
        return _in_child, (settings, self._session.policies.current, self._is_closed)

    def log_batch(
        self,
        *,
        step: int,
        mask: Any = None,
        cu_seqlens: Any = None,
        rollout_logprobs: Any = None,
        old_logprobs: Any = None,
        logprobs: Any = None,
        ref_logprobs: Any = None,
        advantages: Any = None,
        rewards: Any = None,
        group_ids: Any = None,
        versions: Any = None,
        truncated: Any = None,
        finish_reasons: Any = None,
        token_ids: Any = None,
        scalars: Mapping[str, Any] | None = None,
        update: int | None = None,
        trainer_version: int | None = None,
        old_version: int | None = None,
        turn_ids: Any = None,
        turn_offsets: Any = None,
        chunks: int | None = None,
        rollout_logits: Any = None,
        logits: Any = None,
        old_logits: Any = None,
        rollout_topk: tuple[Any, Any] | None = None,
        divergences: Columns | None = None,
        tv: bool = False,
        sum_pi_squared: bool = False,
        texts: Sequence[str] | None = None,
    ) -> BatchDecision:
        """Report the sequences of an update, or of a rollout batch if `update` is None; decide which stay in the loss.

        Args: log-probs, nats: [B, T] torch or numpy, lists of B 1-D arrays, or packed, [N]; two of them to compare.
            ref_logprobs: of a frozen reference policy, shaped alike, for the KL to it; no decision reads them.
            cu_seqlens: B + 1 offsets of packed sequences, best on the host. mask: shaped like the log-probs, not 0
            where a token counts; None, except with [B, T]: all count. advantages, versions: [B] or shaped like
            the log-probs; rewards, group_ids: [B]; truncated: bool or integer [B], not 0 where the length limit cut
            the response; finish_reasons: B texts or None, as the engine gives them: stop, length, abort, others.
            token_ids: integers shaped like the log-probs, of which repeated 4-grams are counted.
            step: the trainer's iteration; update: minibatch or epoch within it.
            turn_ids: integers shaped like the log-probs, the turn of each token, from 0 in each sequence, negative for
            none; on a device they are awaited. turn_offsets: B lists of the positions where turns start, instead.
            chunks: how many calls make up this update on this rank, if known: it completes at once, and one that a
            crash cuts short is known to be incomplete.
            rollout_logits with logits or old_logits, [B, T, V], temperature applied, for the exact KL; or rollout_topk
            (ids, log-probs), [B, T, k] each, and token_ids, [B, T], in place of rollout_logits, for a lower bound of
            the KL; checking the engine's top-k then waits for the device. divergences: in place of all logits, what
            `trmon_client.core.divergence.exact_streamed` returned for the same sequences and tokens.
            tv, sum_pi_squared: with the logits of both, also total variation, and squared probabilities for W.
            texts [B]: kept by the recorder, as token_ids are, where `record_texts` and `record_dir` ask for it.
        Errors: ValueError on the first call only, naming the argument and what was expected.
        """
        tensors, logits = GivenBatch.of(locals()), given_logits(locals())
        session = self._current_session()
        if self.settings.mode is Mode.OFF:
            return BatchDecision.neutral(tensors, error_guard=session.error_guard)
        is_first, self._is_first_batch = self._is_first_batch, False
        try:
            batch = LoggedBatch(step, update, chunks, tensors, logits, scalars, texts)
            if is_closed := self._is_closed:
                session.error_guard.count_closed("log_batch")
            decision = session.log_batch(batch, is_closed=is_closed)
        except Exception as error:  # the edge of the client: only a wrong argument of the first call raises
            if is_first and isinstance(error, ValueError):
                raise
            session.error_guard.record(error)
            return BatchDecision.neutral(tensors, error_guard=session.error_guard)
        if (act := self.settings.on_incident) is not None and step != self._incidents_step:
            session.error_guard.guard(lambda: self._tell_of_incident(act, session, step), otherwise=None)
        return decision

    def _tell_of_incident(self, act: OnIncident, session: Session, step: int) -> None:
        """Call the trainer's function at the first call of a step; several ranks have to agree before one acts."""
        self._incidents_step = step
        if session.n_ranks > 1:
            session.error_guard.warn_of_misuse("on_incident", SEVERAL_RANKS)
        elif (incident := session.advice_cache.take_incident()) is not None:
            call_on_incident(act, incident, session.error_guard)

    @property
    def advice_cache(self) -> AdviceCache:
        """What the service has told this process of its run."""
        return self._current_session().advice_cache

    @property
    def error_guard(self) -> ErrorGuard:
        """Keeps failures of the client and its integrations from the trainer, and counts them on the run."""
        return self._current_session().error_guard

    def log_scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Report the trainer's own numbers of a step by name; values that are not numbers are counted and left out."""
        self._send("log_scalars", lambda session: session.log_scalars(step, values))

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Report the trainer's own numbers as `log_scalars` does, with the arguments in the order of other trackers.

        Args: step: by default that of the newest batch; in a run without batches, one more than the last call's.
        """
        self._send("log", lambda session: session.log_scalars(step, values))

    def pause(self, reason: str = "") -> None:
        """Report that the trainer pauses on purpose (evaluation, checkpoint) until it logs again."""
        self._send("pause", lambda session: session.pause(reason))

    def checkpoint(self, step: int, path: str | os.PathLike[str], *, part: str = "") -> None:
        """Report that a checkpoint has been saved: messages and the page then name the one to go back to.

        Every rank may call; rank 0 reports. Args: step: as of `log_batch`, of the newest batch that its weights were
        trained on; path: where the trainer resumes from, on its disk or a URL; part: what the trainer deletes of it.
        """
        self._send("checkpoint", lambda session: session.checkpoint(step, path, part=part))

    def _send(self, call: str, send: Callable[[Session], None]) -> None:
        session = self._current_session()
        if not self._is_closed:
            session.error_guard.guard(lambda: send(session), otherwise=None)
        elif self.settings.mode is not Mode.OFF:
            session.error_guard.count_closed(call)

    def close(self, timeout: float | None = 2.0) -> None:
        """Finish the run: report the last chunk counts, send queued messages, and spool those that cannot be sent.

        Args: timeout: seconds after which it returns in any case; None: it returns when all is sent or on disk.
        """
        end = ProcessEnd(EndReason.CLOSED)
        self._close(end, timeout_seconds=math.inf if timeout is None else timeout)

    def __enter__(self: AnyMonitor) -> AnyMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closed = EndReason.CLOSED
        end = ProcessEnd(closed) if error is None else ProcessEnd.by_exception(error, orderly=closed)
        self._close(end, timeout_seconds=self.settings.limits.exit_timeout_seconds)

    def _close(self, end: ProcessEnd, *, timeout_seconds: float) -> None:
        session = self._current_session()
        is_closed, self._is_closed = self._is_closed, True
        # A run that never logged has nothing to finish, but may crash; a fork that never logged reports neither.
        if is_closed or not (session.has_started or (end.is_crash and not session.is_fork)):
            return
        session.error_guard.guard(lambda: session.finish(end, timeout_seconds=timeout_seconds), otherwise=None)

    def _current_session(self) -> Session:
        """Return the session of this process: a forked child must not use its parent's threads and sockets."""
        before = self._session
        if before.pid != os.getpid():
            self._begin_session(before.policies.current, is_fork=True)
            self._sessions.pop(before.pid, None)
        return self._session

    def _begin_session(self, policy: Policy, *, is_fork: bool) -> None:
        session = Session(self.settings, policy=policy, is_fork=is_fork)
        # The first of the child's threads wins; a lock that another thread holds at the fork would stay locked.
        self._session = self._sessions.setdefault(session.pid, session)


def _in_child(settings: ClientSettings, policy: Policy, is_closed: bool) -> Monitor:
    monitor = Monitor(settings)
    monitor._sessions.clear()
    monitor._begin_session(policy, is_fork=True)
    monitor._is_closed = is_closed
    return monitor


def init(
    *,
    project: str | None = None,
    run: str | None = None,
    config: Mapping[str, Any] | object | None = None,
    owner: str | None = None,
    tags: Sequence[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    policy: str | Mapping[str, Any] | None = None,
    mode: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: str | None = None,
    spool_dir: str | Path | None = None,
    record_dir: str | Path | None = None,
    record_steps: int | None = None,
    record_texts: bool | None = None,
    triton: bool | None = None,
    checkpoint_on_warning: bool | None = None,
    on_incident: OnIncident | None = None,
    tracker: str | None = None,
) -> Monitor:
    """Return the monitor of a run; arguments that are None are read from their TRMON_ variables.

    Args: project: its name, required. run: its name; by default the job's (torchrun, Slurm), else script and time.
        url, token: of the service; without a url, reports go to `spool_dir`.
        policy: a preset's name or a spec; default `trm_auto`. mode: observe (default), enforce or off; TRMON_MODE
        overrides.
        rank, world_size: data-parallel; required if the process group also has other kinds of ranks.
        record_dir: a folder for the tokens of the last `record_steps` steps (8), written when an incident opens and
        when the process ends; off by default. record_texts: also some of the `texts` of `log_batch`.
        triton: reduce batches on a CUDA device with Triton, once a thread has compiled its kernels; off by default.
        Batches before that, and elsewhere, are reduced as without it.
        checkpoint_on_warning: ask for a checkpoint, once an illness, at its first warning (`advice.save_checkpoint`).
        on_incident: called with the incident in the thread of `log_batch`, at the first call of a step, when one opens
        and if it becomes a page; in a run of one process.
        tracker: "wandb", "mlflow" or "tensorboard:FOLDER": findings are written to the run that the trainer has there.
        attempt: a name for this start of the trainer; default the launcher's. config: any values that describe the run.
    Errors: ValueError naming the argument and its variable; never for network failures.
    """
    given = {**locals()}
    return Monitor(resolve_settings(given, environment=os.environ))
