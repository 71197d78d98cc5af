"""The real client without threads, disk or network: decisions for the trainer, and each message as it is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import msgspec

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_client.batch_decision import BatchDecision
from trmon_client.config.settings import ClientSettings, Mode, resolve_settings
from trmon_client.core import wire
from trmon_client.core.inputs.checked_inputs import GivenBatch
from trmon_client.core.policies.policy import Policy
from trmon_client.process.identity import Ranks, resolve_identity
from trmon_client.process.process_end import ProcessEnd
from trmon_client.sending.encoder import Encoder, PendingMessage
from trmon_client.session import LoggedBatch, Session

PROJECT = "interventions"
CLOSE_SECONDS = 1.0

Receive = Callable[[wire.Message], None]


class LiveMonitor:
    """Decides on batches as the client does, and hands its messages to a function before each call returns.

    Errors of the client reach the trainer: an experiment must not continue without its data.
    """

    def __init__(self, settings: ClientSettings, *, receive: Receive | None = None) -> None:
        """Args: receive: gets what a service would decode; None: no message is built."""
        self._session = Session(settings, policy=settings.policy, is_fork=False)
        self._session.make_encoder = partial(_InProcessEncoder, receive)

    def log_batch(
        self,
        *,
        step: int,
        update: int | None = None,
        chunks: int | None = None,
        scalars: Mapping[str, float] | None = None,
        **arguments: Any,
    ) -> BatchDecision:
        """See trmon_client.Monitor."""
        return self._session.log_batch(LoggedBatch(step, update, chunks, GivenBatch(**arguments), scalars=scalars))

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        """See trmon_client.Monitor."""
        self._session.log_scalars(step, values)

    def __enter__(self) -> LiveMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session.has_started:
            self._session.finish(ProcessEnd(wire.EndReason.CLOSED), timeout_seconds=CLOSE_SECONDS)


def live_settings(config: ExperimentConfig, *, policy: Policy, mode: Mode) -> ClientSettings:
    """Return the client's settings for one run, whatever the environment of this process says."""
    declared = msgspec.to_builtins(config)
    given = {"project": PROJECT, "run": config.run_name, "config": declared, "policy": policy.spec(), "mode": mode}
    return resolve_settings(given | {"rank": 0, "world_size": 1, "attempt": "a", "signals": False}, environment={})


class _InProcessEncoder(Encoder):
    """Builds each message at once, and passes on what the service would read."""

    def __init__(
        self,
        receive: Receive | None,
        settings: ClientSettings,
        ranks: Ranks,
        *,
        is_fork: bool,
        n_before: int,
        **given: Any,
    ) -> None:
        """Args: receive: see LiveMonitor."""
        super().__init__(settings, ranks, is_fork=is_fork, n_before=n_before, **given)
        self._receive = receive
        self._identity = resolve_identity(
            settings, ranks, is_fork=is_fork, give_up=threading.Event(), n_before=n_before
        )

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def put(self, message: PendingMessage) -> bool:
        """Hand over a message."""
        if self._receive is not None:
            built = message.build(self._identity, wire.Losses())
            self._receive(wire.decode(wire.encode(built), media_type=wire.MSGPACK))
        return True

    def begin_close(self, timeout_seconds: float, *, last: PendingMessage | None = None) -> None:
        """Hand over the last message."""
        if last is not None:
            self.put(last)

    def wait_closed(self) -> None:
        """Return at once: nothing waits."""
