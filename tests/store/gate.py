"""Blocks the writer so that operations queue up."""

from __future__ import annotations

from threading import Event

from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction


class Gate:
    """Keeps the writer blocked inside a transaction until the context exits."""

    def __init__(self, writer: GroupCommit) -> None:
        self._entered, self._opened = Event(), Event()
        self._writer = writer

    def __enter__(self) -> Gate:
        self._writer.submit(self._hold)
        assert self._entered.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.set()

    def _hold(self, _: Transaction) -> None:
        self._entered.set()
        assert self._opened.wait(10)
