"""The signals that follow from the columns of one batch alone."""

from __future__ import annotations

import numpy as np

from trmon.domain.signals.drift_features import k3_excess, ppl_shifts, ratio_shift
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.sequence_matrix import SequenceMatrix
from trmon_client.core.signals import batch_signals


@np.errstate(all="ignore")
def columns_signals(columns: Columns) -> dict[str, float]:
    """Return the batch signals and the drift features by name. Source: formulas, sections 5 and 9."""
    sequences = SequenceMatrix.of(columns)
    found = batch_signals.compute_of_sequences(sequences)
    found |= {f"{pair}_k3_excess": k3_excess(sequences, pair) for pair in columns.pairs}
    found |= {f"{pair}_ratio_shift": ratio_shift(sequences, pair) for pair in columns.pairs}
    return found | ppl_shifts(sequences)
