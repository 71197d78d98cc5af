"""The loads that are measured: some fit the demands, the others are predicted."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.load.workload import Workload

MANY_RANKS = Workload(first_run=0, n_runs=20, n_ranks=8)
ONE_RANK = Workload(first_run=100, n_runs=40, n_ranks=1)
SMALL = Workload(first_run=200, n_runs=6, n_ranks=16, n_sequences=4)
MIXED = Workload(first_run=300, n_runs=10, n_ranks=4, n_sequences=32)
IDLE_RUNS = Workload(first_run=1000, n_runs=400, n_ranks=1, n_sequences=4)
"""Runs that are active and send nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCell:
    """A workload at a share of the rate that the machine carries; heartbeats and scrapes of /metrics per second.

    `share` 0 sends no report, 1 sends each report as soon as the last one of its connection is acknowledged.
    """

    name: str
    workload: Workload = MANY_RANKS
    share: float = 0.0
    heartbeats: float = 0.0
    scrapes: float = 0.0
    is_held_out: bool = False

    @property
    def is_closed_loop(self) -> bool:
        """Whether connections wait for acknowledgements only."""
        return self.share == 1.0


FITTED = (
    LoadCell(name="nothing"),
    LoadCell(name="20 runs of 8 ranks, 64 sequences", workload=MANY_RANKS, share=0.2),
    LoadCell(name="20 runs of 8 ranks, 64 sequences", workload=MANY_RANKS, share=0.6),
    LoadCell(name="20 runs of 8 ranks, 64 sequences", workload=MANY_RANKS, share=1.0),
    LoadCell(name="40 runs of 1 rank, 64 sequences", workload=ONE_RANK, share=0.25),
    LoadCell(name="6 runs of 16 ranks, 4 sequences", workload=SMALL, share=0.5),
    LoadCell(name="heartbeats", heartbeats=150.0),
    LoadCell(name="scrapes", scrapes=2.0),
)
HELD_OUT = tuple(
    LoadCell(
        name="10 runs of 4 ranks, 32 sequences, heartbeats and scrapes",
        workload=MIXED,
        share=share,
        heartbeats=20.0,
        scrapes=0.5,
        is_held_out=True,
    )
    for share in (0.1, 0.25, 1.0)
)
CELLS = (*FITTED, *HELD_OUT)
TOP = HELD_OUT[-1]
"""The load whose rate is the one that this machine carries."""
