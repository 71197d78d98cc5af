"""A measured load: its rates, what each station used, and how long acknowledgements took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trmon.domain.capacity.demand_file import ReferenceMachine

SAMPLES = Path(__file__).with_name("samples.json")


class LoadSample(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of load until its batches were closed; rates and usage per second, by activity and station.

    `per_second` are acknowledged reports while they were sent; `sender_cores` what the benchmark itself used.
    """

    deployment: str
    cell: str
    share: float
    is_held_out: bool
    n_api: int
    n_connections: int
    sequences: int
    seconds: float
    rates: Mapping[str, float]
    used: Mapping[str, float]
    per_second: float
    mean_ms: float | None
    p99_ms: float | None
    sender_cores: float


class SampleFile(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a measurement."""

    machine: ReferenceMachine
    measured_at: str
    load_average: float
    samples: Sequence[LoadSample]


def read_samples(path: Path = SAMPLES) -> SampleFile:
    """Return stored samples."""
    return msgspec.json.decode(path.read_bytes(), type=SampleFile)


def write_samples(file: SampleFile, path: Path = SAMPLES) -> None:
    """Write samples, one a line, so that a diff shows what changed."""
    fields = msgspec.to_builtins(file)
    lines = ",\n".join(msgspec.json.encode(sample).decode() for sample in fields.pop("samples"))
    head = "".join(f'"{name}":{msgspec.json.encode(value).decode()},\n' for name, value in fields.items())
    path.write_text(f'{{{head}"samples":[\n{lines}\n]}}\n')
