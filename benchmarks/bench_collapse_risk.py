"""Measures the risk of a collapse: CPU time a step, part by part, and what it adds to a stored row; prints a table.

PYTHONPATH=. python benchmarks/bench_collapse_risk.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from trmon.domain.collapse_risk.risk_inputs import INPUTS, InputHistory, read_inputs, risk_features, scaled
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import risk_signals

STEPS = 60
CALLS, REPEATS = 200, 50
BYTES_PER_SIGNAL = 8
"""A row stores each signal as a float64; its name is stored once for all rows that have the same names."""


def main() -> None:
    """Print the least microseconds of a step's parts: other work only lengthens them."""
    model, rng, history = shipped_model(), np.random.default_rng(1), InputHistory()
    for _ in range(STEPS):
        numbers = _numbers(rng)
        history = history.with_step(scaled(read_inputs(numbers)))
    values, features = scaled(read_inputs(numbers)), risk_features(history.statistics)
    parts: dict[str, Callable[[], object]] = {
        "read and scale the inputs": lambda: scaled(read_inputs(numbers)),
        "advance their history": lambda: history.with_step(values),
        "features": lambda: risk_features(history.statistics),
        "estimate": lambda: model.estimate(features),
        "a whole step": lambda: risk_signals(history.with_step(scaled(read_inputs(numbers))), model),
    }
    table = Table("part", "CPU us", title=f"the least of {REPEATS} means over {CALLS} calls")
    for name, call in parts.items():
        table.add_row(name, f"{1e6 * _least_seconds(call):.1f}")
    console = Console()
    console.print(table)
    n_signals = len(risk_signals(history, model))
    console.print(f"a row grows by {n_signals} signals, {BYTES_PER_SIGNAL * n_signals} bytes")
    console.print(f"the state of a run grows by {2 * len(history.matrix)} bytes: before and after its newest step")


def _numbers(rng: np.random.Generator) -> dict[str, float]:
    names = (f"mismatch_{given.name}" if given.of_engines else given.name for given in INPUTS)
    return {name: float(value) for name, value in zip(names, rng.random(len(INPUTS)), strict=True)}


def _least_seconds(call: Callable[[], object]) -> float:
    def mean() -> float:
        started = time.process_time()
        for _ in range(CALLS):
            call()
        return (time.process_time() - started) / CALLS

    return min(mean() for _ in range(REPEATS))


if __name__ == "__main__":
    main()
