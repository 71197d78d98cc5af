"""Read the launcher's variables (torchrun, Slurm, Ray): the attempt, the launch, restarts and ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

VARIABLES = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "RAY_JOB_ID"),
    *("RANK", "WORLD_SIZE"),
)
"""The variables of launchers that the client reads."""


def attempt_id(launcher: Mapping[str, str]) -> str | None:
    """Return the launcher's id and restart count, or None if no launcher names this attempt."""
    # torchrun without --rdzv-id calls every job "none".
    if launcher.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return _joined("torchrun", launcher["TORCHELASTIC_RUN_ID"], restart_count(launcher))
    if "SLURM_JOB_ID" in launcher:
        return _joined("slurm", launcher["SLURM_JOB_ID"], launcher.get("SLURM_RESTART_COUNT", "0"))
    if "RAY_JOB_ID" in launcher:
        return _joined("ray", launcher["RAY_JOB_ID"])
    return None


def launch_id(launcher: Mapping[str, str]) -> str | None:
    """Return an id that all ranks of one start share and no other start has, or None.

    The address distinguishes two torchrun jobs with the same id, the step two calls of `srun` in one Slurm job. Ray's
    job id outlives its workers and identifies no start.
    """
    attempt = attempt_id(launcher)
    if attempt is None or attempt.startswith("ray"):
        return None
    names = ("MASTER_ADDR", "MASTER_PORT") if attempt.startswith("torchrun") else ("SLURM_STEP_ID",)
    return _joined(attempt, *(launcher.get(name, "") for name in names))


def restart_count(launcher: Mapping[str, str]) -> str:
    """Return how often torchrun has restarted the workers, 0 without torchrun."""
    return launcher.get("TORCHELASTIC_RESTART_COUNT", "0")


def rank_hint(launcher: Mapping[str, str]) -> tuple[int, int]:
    """Return the global rank and world size that a launcher announces, else 0 and 1."""
    rank, world_size = launcher.get("RANK", "0"), launcher.get("WORLD_SIZE", "1")
    if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
        return int(rank), int(world_size)
    return 0, 1


def _joined(*parts: str) -> str:
    name = "-".join(part for part in parts if part)
    if len(name) <= 96 and name.isprintable():
        return name
    # Bytes of the environment that are not UTF-8 are lone surrogates here, which messages do not accept.
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{''.join(filter(str.isprintable, name))[:64]}-{digest}"
