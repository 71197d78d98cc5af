"""Renews the leases on slots that this process holds in the database, and says which runs it owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Lock

import structlog

from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.ownership import Fences, Ownership, SlotHoldings
from trmon.fleet.changes import PeriodicThread
from trmon.fleet.heartbeats import Heartbeat
from trmon.store.repositories.leases import Leases

RENEWALS = 5
"""How often a lease is renewed before it would expire."""

log = structlog.get_logger(__name__)


class LeaseManager(PeriodicThread, Ownership):
    """Renews leases on its own thread; owns the runs of the slots that it holds.

    Only its thread calls the database, and never under the lock: a call from another thread returns at once.
    A slot that it reports as held may have been lost a moment ago: each commit checks the slot's fence. While the
    worker hangs no lease is renewed: others take its runs.
    """

    def __init__(self, leases: Leases, heartbeat: Heartbeat | None = None) -> None:
        """Args: heartbeat: of the worker; without one it is taken to work."""
        super().__init__(
            "leases",
            self._release_and_renew,
            every_seconds=leases.lease_seconds / RENEWALS,
            pause_seconds=0.0,
            failure="lease_renewal_failed",
        )
        self._leases = leases
        self._heartbeat = heartbeat
        self.on_gain: Callable[[], None] = lambda: None
        """Called whenever a slot is gained."""
        self._holdings = SlotHoldings(fences={}, n_workers=1)
        self._valid_until = 0.0
        self._unreleased: frozenset[int] = frozenset()
        self._lock = Lock()

    def close(self) -> None:
        """Stop, and release every slot for others to take at once."""
        super().close()
        try:
            self._leases.leave()
        except Exception as error:  # noqa: BLE001 - the edge of the process: the leases expire by themselves
            log.warning("lease_release_failed", error=str(error))

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
        self.wake()

    def _release_and_renew(self) -> None:
        """A lease counts from before the renewal, so it expires here before it does for other processes."""
        if self._heartbeat is not None and (age_seconds := self._heartbeat.age_seconds) > HUNG_SECONDS:
            raise NotReady(f"the worker has made no progress for {age_seconds:.0f} s")
        with self._lock:
            slots = self._unreleased
        if slots:
            self._leases.release(slots)
            with self._lock:
                self._unreleased -= slots
        called_at = time.monotonic()
        renewed = self._leases.renew()
        with self._lock:
            # A slot that was released during the call may still be held in the database's answer.
            former, self._holdings = self._holdings, renewed.without(self._unreleased)
            self._valid_until = called_at + self._leases.lease_seconds
            new = self._holdings.fences.items() - former.fences.items()
        if new:
            self.on_gain()
