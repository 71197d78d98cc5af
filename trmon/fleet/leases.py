"""Holds leases on slots of runs in the database, and says which runs this process owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Lock
from typing import Protocol

import structlog

from trmon.domain.ports import Fences, SlotHoldings
from trmon.fleet.changes import PeriodicThread

RENEWALS = 5
"""How often a lease is renewed before it would expire."""

log = structlog.get_logger(__name__)


class LeaseStore(Protocol):
    """The part of the store that holds leases."""

    lease_seconds: float

    def renew(self) -> SlotHoldings:
        """Renew the held slots, and take free ones up to a fair share. Errors: NotReady."""

    def release(self, slots: Collection[int], /) -> None:
        """Release slots. Errors: NotReady."""

    def leave(self) -> None:
        """Release every slot. Errors: NotReady."""


class LeaseManager:
    """Renews leases on a thread of its own; implements trmon.domain.ports.Ownership.

    Only its thread calls the database, and never under the lock: a call from another thread returns at once.
    A slot that it reports as held may have been lost a moment ago: each commit checks the slot's fence.
    """

    def __init__(self, leases: LeaseStore) -> None:
        self._leases = leases
        self._on_gain: Callable[[], None] = lambda: None
        self._holdings = SlotHoldings(fences={}, n_workers=1)
        self._valid_until = 0.0
        self._unreleased: frozenset[int] = frozenset()
        self._lock = Lock()
        self._thread = PeriodicThread(
            "leases",
            self._release_and_renew,
            every_seconds=leases.lease_seconds / RENEWALS,
            pause_seconds=0.0,
            failure="lease_renewal_failed",
        )

    def on_gain(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever a slot is gained."""
        self._on_gain = listener

    def start(self) -> None:
        """Start to take slots."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and release every slot for others to take at once."""
        self._thread.close()
        try:
            self._leases.leave()
        except Exception as error:  # noqa: BLE001 - the edge of the process: the leases expire by themselves
            log.warning("lease_release_failed", error=str(error))

    @property
    def alive(self) -> bool:
        """Whether leases are being renewed."""
        return self._thread.alive

    def fences(self) -> Fences | None:
        """Return the slots that are held now, each with its fence."""
        with self._lock:
            return dict(self._holdings.fences) if time.monotonic() < self._valid_until else {}

    def surplus(self) -> frozenset[int]:
        """Return the slots to release once checkpoints of their runs are written."""
        with self._lock:
            return self._holdings.surplus if time.monotonic() < self._valid_until else frozenset()

    def release(self, slots: Collection[int]) -> None:
        """Stop owning slots at once; the thread releases them in the database, and retries after an error."""
        with self._lock:
            self._unreleased |= frozenset(slots)
            self._holdings = self._holdings.without(slots)
        self._thread.wake()

    def _release_and_renew(self) -> None:
        self._release()
        self._renew()

    def _release(self) -> None:
        with self._lock:
            slots = self._unreleased
        if slots:
            self._leases.release(slots)
            with self._lock:
                self._unreleased -= slots

    def _renew(self) -> None:
        """Renew; a lease counts from before the call, so it expires here before it does for other processes."""
        called_at = time.monotonic()
        renewed = self._leases.renew()
        with self._lock:
            # A slot that was released during the call may still be held in the database's answer.
            former, self._holdings = self._holdings, renewed.without(self._unreleased)
            self._valid_until = called_at + self._leases.lease_seconds
            new = self._holdings.fences.items() - former.fences.items()
        if new:
            self._on_gain()
