"""Draws the figure of docs/capacity.md: predictions beside measurements, and what the scale needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.capacity.comparison import ComparedLoad
from benchmarks.capacity.report import INTERNET_SCALE, MACHINE
from trmon.domain.capacity.architecture import ARCHITECTURES
from trmon.domain.capacity.capacity_plan import plan_capacity
from trmon.domain.capacity.demand_file import DemandFile

RUNS = np.unique(np.geomspace(1, 10_000, 25).astype(int))
MARKERS = "osd"


def draw(loads: Sequence[ComparedLoad], file: DemandFile, path: Path) -> None:
    """Write the figure as SVG; the same data give the same bytes."""
    rcParams["svg.hashsalt"] = "trmon"
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_compared(left, loads)
    _draw_scale(right, file)
    figure.savefig(path, metadata={"Date": None})


def _draw_compared(axis: Axes, loads: Sequence[ComparedLoad]) -> None:
    for i, station in enumerate(sorted({one for load in loads for one in load.used}, key=lambda one: one.value)):
        pairs = np.array([load.used[station] for load in loads if station in load.used])
        axis.plot(pairs[:, 0], pairs[:, 1], MARKERS[i], label=station.value, alpha=0.8)
    ends = np.array([0.02, 2.0])
    axis.plot(ends, ends, color="black", linewidth=0.8)
    axis.fill_between(ends, ends / 1.25, ends * 1.25, color="grey", alpha=0.2, label="within 25%")
    axis.set(xscale="log", yscale="log", xlabel="measured, busy cores", ylabel="predicted, busy cores")
    axis.set_title("Loads that the model was not fitted to, at 1/10, 1/4 and 1 of the top", fontsize=10)
    axis.legend(fontsize=8)


def _draw_scale(axis: Axes, file: DemandFile) -> None:
    for architecture in ARCHITECTURES:
        plans = [
            plan_capacity(
                replace(INTERNET_SCALE, runs=int(runs)), machine=MACHINE, file=file, architectures=[architecture]
            )[0]
            for runs in RUNS
        ]
        carried = [plan for plan in plans if plan.loads.carries]
        name = architecture.name + ("" if architecture.is_built else " (not built)")
        line = axis.plot([plan.workload.runs for plan in carried], [plan.machines for plan in carried], label=name)
        if carried and len(carried) < len(plans):
            axis.plot(carried[-1].workload.runs, carried[-1].machines, "x", color=line[0].get_color())
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="runs of 256 ranks, a step each 30 s",
        ylabel=f"machines of {MACHINE.cores} cores",
    )
    axis.set_title("Machines needed at 60% utilisation; x: the last that it carries", fontsize=10)
    axis.legend(fontsize=8)
