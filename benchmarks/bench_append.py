"""Measures ingest: packing one report, and durable reports per second; prints a table.

PYTHONPATH=. python benchmarks/bench_append.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache

import msgspec
from rich.console import Console
from rich.table import Table

from tests.store.builders import NOW, intake, realistic_columns, report
from trmon.domain.messages import PreparedMessage, WriteResult
from trmon.store import Store
from trmon.store.rows import messages
from trmon_client.core import wire

SHAPES = ((8, 64), (64, 64), (64, 512), (64, 2048), (512, 256))
"""Sequences and the maximum response length; three pairs."""
REPORTS = 12_800
RANKS = 64
REPEATS = 200


def main() -> None:
    """Measure the codec and the writer, and print the results."""
    _print_codec()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/trmon.db")
        store.migrate()
        table = Table("reports of 64 sequences x 3 pairs", "reports/s", "median ms", title="Store")
        per_second = _coalesced(store)
        table.add_row(f"{RANKS} at a time, two requests in flight", f"{per_second:,.0f}", "")
        alone = [_milliseconds(lambda step=step: _wait([_made(10**6 + step, 0)], store)) for step in range(REPEATS)]
        table.add_row("one at a time", f"{1000 / statistics.mean(alone):,.0f}", f"{statistics.median(alone):.2f}")
        store.close()
    Console().print(table)


def _print_codec() -> None:
    table = Table("sequences x tokens", "raw bytes", "stored", "pack ms", "header ms", "columns ms", title="Codec")
    for n, length in SHAPES:
        made = realistic_columns(n=n, length=length)
        raw = sum(array.nbytes for array in (*made.values(), *made.histograms.values()))
        message = wire.Report(attempt="a", launch="launch-1", step=1)
        parcel = wire.pack_columns(made)
        payload = messages.pack_report(message, parcel=parcel)
        unpacked = messages.unpack_report(payload)[1]
        times = (
            _median(lambda message=message, parcel=parcel: messages.pack_report(message, parcel=parcel)),
            _median(lambda payload=payload: messages.unpack_report(payload)),
            _median(unpacked),
        )
        table.add_row(
            f"{n} x {length}",
            f"{raw:,}",
            f"{len(payload) / raw:.1%}",
            *(f"{milliseconds:.3f}" for milliseconds in times),
        )
    Console().print(table)


def _coalesced(store: Store) -> float:
    """Return reports per second if all ranks of a step report together and the next step does not wait."""
    intakes = [_made(i // RANKS, i % RANKS) for i in range(REPORTS)]
    before: list[Future[WriteResult]] = []
    began = time.perf_counter()
    for first in range(0, REPORTS, RANKS):
        futures = store.reports.append(intakes[first : first + RANKS], now=NOW)
        for future in before:
            future.result()
        before = futures
    for future in before:
        future.result()
    return REPORTS / (time.perf_counter() - began)


@cache
def _base() -> PreparedMessage:
    return intake(report(n=64))


def _made(step: int, rank: int) -> PreparedMessage:
    """Return a report as the service stores it: packed, with its digest."""
    message = msgspec.structs.replace(_base().message, step=step, rank=rank, world_size=RANKS)
    return replace(_base(), message=message)


def _wait(intakes: list[PreparedMessage], store: Store) -> None:
    for future in store.reports.append(intakes, now=NOW):
        future.result()


def _median(call: Callable[[], object]) -> float:
    return statistics.median(_milliseconds(call) for _ in range(REPEATS))


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
