"""A recorded run: the spool that its client wrote, and the true course of its reward, in a cache folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trmon_client.core.wire.segments import SUFFIX, scan_segment

COURSE = "course.npz"
CACHE = Path.home() / ".cache" / "trmon-detection"
PROJECT = "detection"


@dataclass(frozen=True, slots=True)
class RunName:
    """What a recorded run is known by: its testbed, its kind and its seed."""

    testbed: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.testbed}-{self.kind}-{self.seed}".lower().replace("_", "-")


@dataclass(frozen=True, eq=False)
class RecordedCourse:
    """One finished recording: one value a step: `rewards` as the trainer saw them, `true_rewards` by a
    verifier that works, and `grad_norms`."""

    name: RunName
    folder: Path
    onset_step: int
    rewards: npt.NDArray[np.float64]
    true_rewards: npt.NDArray[np.float64]
    grad_norms: npt.NDArray[np.float64]

    @classmethod
    def open(cls, name: RunName, cache: Path) -> RecordedCourse | None:
        """Return a recording, or None if it is not there or was cut short."""
        path = cache / str(name) / COURSE
        if not path.exists():
            return None
        with np.load(path) as course:
            onset_step = int(course["onset_step"])
            columns = (course[column] for column in ("rewards", "true_rewards", "grad_norms"))
            return cls(name, path.parent, onset_step, *columns)


def messages_in(folder: Path) -> Iterator[bytes]:
    """Yield the messages of the one client that spooled to a folder, in their order."""
    for segment in sorted(folder.rglob(f"*{SUFFIX}")):
        yield from scan_segment(segment.read_bytes()).messages


def write_course(name: RunName, cache: Path, *, onset_step: int, steps: list[Any], settings: dict[str, Any]) -> None:
    """Write the course of a run whose spool is complete, and its line of the manifest."""
    folder = cache / str(name)
    rewards, true_rewards = (np.array([getattr(step, name) for step in steps]) for name in ("reward", "true_reward"))
    norms = np.array([step.grad_norm for step in steps])
    partial = folder / f"partial-{COURSE}"
    np.savez(partial, onset_step=onset_step, rewards=rewards, true_rewards=true_rewards, grad_norms=norms)
    partial.rename(folder / COURSE)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    line = {"run": str(name), "n_steps": len(steps), "bytes": size, **settings}
    with (cache / "manifest.jsonl").open("a") as manifest:
        manifest.write(json.dumps(line) + "\n")
