"""Tenancy: which runs are this process's, while the database says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Event, Lock, Thread
from typing import Protocol

import structlog

from trmon.domain.model.slots import Fences, SlotHoldings

RENEWALS = 5
"""How often a lease is renewed before it would end."""

log = structlog.get_logger(__name__)


class LeaseStore(Protocol):
    """What a tenant asks of the store."""

    lease_seconds: float

    def renew(self) -> SlotHoldings:
        """Keep what is held, and take what is missing and free. Errors: NotReady."""

    def release(self, slots: Collection[int]) -> None:
        """Give slots up. Errors: NotReady."""

    def leave(self) -> None:
        """Give up everything. Errors: NotReady."""


class LeaseManager:
    """A thread that renews leases on slots of runs; implements trmon.domain.ports.Ownership.

    Only its thread calls the database, and never under the lock: a call from another thread returns at once.
    What it says it holds it may have lost a moment ago: each commit is checked against its fence.
    """

    def __init__(self, leases: LeaseStore, *, gained: Callable[[], None] = lambda: None) -> None:
        self._leases = leases
        self._gained = gained
        self._standing = SlotHoldings(fences={}, n_workers=1)
        self._valid_until = 0.0
        self._given_up: frozenset[int] = frozenset()
        self._lock = Lock()
        self._woken = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-tenancy", daemon=True)

    def on_gain(self, listener: Callable[[], None]) -> None:
        """Call the listener when there are slots that were not held before."""
        self._gained = listener

    def start(self) -> None:
        """Begin to take slots."""
        self._thread.start()

    def close(self) -> None:
        """Give up everything, for others to take at once."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()
        try:
            self._leases.leave()
        except Exception as error:  # noqa: BLE001 - the edge of the process: the leases end by themselves
            log.warning("leases_not_given_up", error=str(error))

    @property
    def alive(self) -> bool:
        """Whether leases are being renewed."""
        return self._thread.is_alive()

    def fences(self) -> Fences | None:
        """Return the slots that are held for now, each with its fence."""
        with self._lock:
            return dict(self._standing.fences) if time.monotonic() < self._valid_until else {}

    def surplus(self) -> frozenset[int]:
        """Return the slots to be given up, once their runs are at rest."""
        with self._lock:
            return self._standing.surplus if time.monotonic() < self._valid_until else frozenset()

    def release(self, slots: Collection[int]) -> None:
        """Give slots up at once; the thread then releases them in the database, and tries again after an error."""
        with self._lock:
            self._given_up |= frozenset(slots)
            self._standing = self._standing.without(slots)
        self._woken.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._hand_back()
                self._renew()
            except Exception as error:  # noqa: BLE001 - the edge of the thread: what is held ends by itself
                log.warning("leases_not_renewed", error=str(error))
            self._woken.wait(self._leases.lease_seconds / RENEWALS)
            self._woken.clear()

    def _hand_back(self) -> None:
        """Release in the database what was given up."""
        with self._lock:
            slots = self._given_up
        if slots:
            self._leases.release(slots)
            with self._lock:
                self._given_up -= slots

    def _renew(self) -> None:
        """A lease counts from before it was asked for: here it ends earlier than it does for the others."""
        asked_at = time.monotonic()
        renewed = self._leases.renew()
        with self._lock:
            # The database may still have counted as held what was given up meanwhile.
            former, self._standing = self._standing, renewed.without(self._given_up)
            self._valid_until = asked_at + self._leases.lease_seconds
            new = self._standing.fences.items() - former.fences.items()
        if new:
            self._gained()
