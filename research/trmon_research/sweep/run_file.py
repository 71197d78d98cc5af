"""The parquet file of a run: one row an update, with its configuration and its label."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.risk_inputs import COARSE_BITS, FINE_BITS, StoredPrecision
from trmon.domain.findings.memory import ATOMS
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_client.core.wire.messages import decodable
from trmon_research.sweep.run_labels import RunLabel
from trmon_research.sweep.service_pipeline import RaisedAlert

FORMAT = 2
COARSE, FINE = StoredPrecision(COARSE_BITS), StoredPrecision(FINE_BITS)
MISMATCH_STEMS = (
    *("kl_k1", "kl_k3", "chi2_token", "chi2_token_p95", "ess_token", "ess_seq", "prob_pearson", "prob_diff_mean"),
    *("prob_diff_max", "ratio_mean"),
)
SIGNAL_COLUMNS = (
    *(name for name, _ in ATOMS),
    *("reward_mean", "reward_std", "zero_variance_groups", "effective_signal", "reward_length_corr"),
    *("sampled_entropy", "response_length_mean", "length_limit_share", "grad_norm", "lr"),
    *(f"mismatch_{stem}" for stem in MISMATCH_STEMS),
    *("staleness_kl_k3", "staleness_abs_log_ratio_max", "staleness_ess_seq"),
    *("clip_fraction", "version_lag_mean", "saturated_fraction", "router_flip_rate", "mask_rate:geo_mask"),
)
"""Signals and scalars that a file holds, as the service names them.

The quantiles of rewards are those that the rules measure a fall with; the 300 stored runs were made without them.
"""
EVALUATION_COLUMNS = ("evaluated_reward", "evaluated_exact")
NEAR_ONE = ("mismatch_ess_token", "mismatch_prob_pearson", "mismatch_ratio_mean", "evaluated_reward", "evaluated_exact")
"""Columns whose distance to 1 matters; they keep twice the digits."""
METADATA_KEY = b"trmon"


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run: its label, its clean evaluations and its cost."""

    label: RunLabel
    first_reward: float
    peak_reward: float
    last_reward: float
    seconds: float


@decodable
class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the footer of a run's file says, as JSON."""

    format: int
    config: ExperimentConfig
    outcome: RunOutcome
    alerts: tuple[RaisedAlert, ...]
    """What the built-in rules raised, oldest first."""


def encode_run(record: RunRecord, columns: Mapping[str, Sequence[float]]) -> bytes:
    """Return the parquet file of a run.

    Signals are float32, rounded to 8 significant bits, those near 1 to 16: less than their noise, and a third of the
    size. Args: columns: SIGNAL_COLUMNS and EVALUATION_COLUMNS, one value an update; NaN where there is none.
    """
    import pyarrow as pa  # an optional dependency
    import pyarrow.parquet as pq

    arrays = {name: rounded_column(name, np.array(columns[name], np.float64)) for name in columns}
    known = {name: values for name, values in arrays.items() if not np.isnan(values).all()}
    updates = np.arange(record.outcome.label.n_updates, dtype=np.int16)
    table = pa.table({"update": updates, **known})
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        use_byte_stream_split=list(known),
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY.decode(): msgspec.json.encode(record).decode()})
    return sink.getvalue()


def rounded_column(name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the values of a column in the precision of the file."""
    return (FINE if name in NEAR_ONE else COARSE).rounded(values)


def read_record(path: Path) -> RunRecord:
    """Return the record in the footer of a run's file. Errors: ValueError if there is none."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path).metadata or {}
    if METADATA_KEY not in metadata:
        raise ValueError(f"{path} is not a run of a sweep")
    return msgspec.json.decode(metadata[METADATA_KEY], type=RunRecord)


def read_columns(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a run's file by name; one that the run has no value of is left out."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}
