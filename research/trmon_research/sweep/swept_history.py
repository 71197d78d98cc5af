"""The files of a sweep as histories for a backtest; reading them needs pyarrow, not torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from trmon.domain.backtest.evaluation import PolicyMaskRate, StoredHistory
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.rules.condition import is_scalar
from trmon.domain.runs.run import RunState
from trmon_client.core.policies.policy import Policy
from trmon_client.core.wire.messages import decodable
from trmon_research.sweep.run_labels import RunLabel
from trmon_research.sweep.unstored_run import ATTEMPT_ID, RUN_ID, unstored_run

FOOTER_KEY = b"trmon"
PAGE_ROWS = 256
PROJECT = "sweep"
LAST_UPDATE = 0
"""The number given to the one update of a step that a file has, the last one: signals of its own row come from it."""
SCALARS = ("exact",)
"""Scalars of the lab's trainer besides those with a common name."""


class _Outcome(msgspec.Struct, frozen=True):
    label: RunLabel


@decodable
class SweptFooter(msgspec.Struct, frozen=True):
    """What a backtest reads of a file's footer."""

    config: dict[str, Any]
    outcome: _Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptHistory:
    """A run of a sweep: its rows have no clock and hold some signals only; `onset` is that of its label."""

    history: StoredHistory
    onset: int | None


def swept_histories(folder: Path, *, runs: Collection[str]) -> Iterator[SweptHistory]:
    """Yield the runs of a sweep's folder by name, or only those named (sweep/RUN).

    Errors: InvalidInput for a file that is not one of a sweep, or a run that the folder does not have.
    """
    paths = {str(RunKey(PROJECT, path.stem)): path for path in sorted(folder.glob("*.parquet"))}
    for wanted in runs:
        if wanted not in paths:
            raise InvalidInput("--run", f"{wanted!r} is not in {folder}; its runs are named {PROJECT}/FILE")
    for name, path in paths.items():
        if not runs or name in runs:
            yield _history(path)


def _history(path: Path) -> SweptHistory:
    import pyarrow as pa  # an optional dependency
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            footer = (file.metadata.metadata or {}).get(FOOTER_KEY)
        if footer is None:
            raise InvalidInput("SOURCE", f"{path} is not a run of a sweep")
        found = msgspec.json.decode(footer, type=SweptFooter)
    except (pa.ArrowException, OSError, msgspec.MsgspecError) as error:
        raise InvalidInput("SOURCE", f"cannot read {path}: {error}") from error
    history = StoredHistory(
        run=unstored_run(RunKey(PROJECT, path.stem), state=RunState.FINISHED, config=found.config),
        rows=partial(_rows, path, found.config),
        apply_policy=_no_sequences,
    )
    return SweptHistory(history=history, onset=found.outcome.label.onset)


def _trained_names(names: list[str]) -> list[str]:
    """Return the columns that the trainer reported: clean evaluations are the label's, and no service sees them."""
    return [name for name in names if name != "update" and not name.startswith("evaluated_")]


def _rows(path: Path, config: dict[str, Any]) -> Iterator[BatchRow]:
    """Yield two rows a step: the rollout, and the signals of its last update."""
    import pyarrow.parquet as pq

    n_sequences = int(config["n_prompts"]) * int(config["n_responses"])
    with pq.ParquetFile(path) as file:
        names = _trained_names(file.schema_arrow.names)
        of_update = [name for name in names if _is_of_update(name)]
        of_rollout = [name for name in names if not _is_of_update(name)]
        ordinal = 0
        for page in file.iter_batches(PAGE_ROWS):
            for values in page.to_pylist():
                for update, chosen in ((None, of_rollout), (LAST_UPDATE, of_update)):
                    ordinal += 1
                    numbers = {name: float(values[name]) for name in chosen}
                    key = BatchKey(ATTEMPT_ID, values["update"], update)
                    yield _row(key, numbers, ordinal=ordinal, n_sequences=n_sequences)


def _is_of_update(name: str) -> bool:
    return name.startswith("staleness_") or name == "clip_fraction"


def _row(key: BatchKey, numbers: dict[str, float], *, ordinal: int, n_sequences: int) -> BatchRow:
    scalars = {name: value for name, value in numbers.items() if is_scalar(name) or name in SCALARS}
    n_tokens = n_sequences * numbers.get("response_length_mean", 0.0)
    return BatchRow(
        run_id=RUN_ID,
        key=key,
        ordinal=ordinal,
        closed_at=0.0,
        n_sequences=n_sequences,
        n_tokens=round(n_tokens),
        n_ranks=1,
        missing_ranks=(),
        complete=True,
        revised=False,
        mode="observe",
        primary_pair="mismatch" if key.update is None else "staleness",
        kl_is="sampled",
        policy_hash=None,
        mismatches=0,
        last_report_id=ordinal,
        signals={name: value for name, value in numbers.items() if name not in scalars},
        scalars=scalars,
    )


def _no_sequences(policy: Policy) -> PolicyMaskRate:
    return PolicyMaskRate(policy=policy.name, skipped="files of a sweep hold no sequences")
