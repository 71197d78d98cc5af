"""The fitted model: a forest of small decision trees whose leaves hold log-odds, calibrated to a probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.model_file import ModelFile, decode_model_file
from trmon.domain.collapse_risk.risk_features import FEATURE_NAMES
from trmon.domain.collapse_risk.risk_inputs import N_INPUTS, Values
from trmon.domain.collapse_risk.tree_nodes import ForestNodes, forest_nodes

NONE = np.zeros(N_INPUTS, bool)
HORIZON = 200
"""Steps within which the collapse begins that the model gives the probability of."""


@dataclass(frozen=True, slots=True)
class CollapseRisk:
    """An estimate: the probability, what each input adds to the log-odds, and which inputs it knows and was fitted for.

    `drivers` [INPUTS] is NaN for an input that is missing or that the model does not read; `outside` [INPUTS] is true
    where a feature is beyond the values of the runs that the model was fitted to.
    """

    probability: float
    drivers: Values
    outside: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RiskModel:
    """A model that can be evaluated; a feature that is not known counts as the median of the runs it was fitted to."""

    file: ModelFile

    @cached_property
    def is_read(self) -> npt.NDArray[np.bool_]:
        """True for the inputs that the model reads, [INPUTS]."""
        return np.bincount(self._inputs, minlength=N_INPUTS) > 0

    def estimate(self, features: Values) -> CollapseRisk:
        """Return the risk at features [FeatureKind, INPUTS]; NaN without a known feature."""
        values = features.ravel()[self._places]
        known = values == values
        is_known = self.is_read if known.all() else np.bincount(self._inputs, known, minlength=N_INPUTS) > 0
        leaves = self._nodes.leaves(np.where(known, values, self._medians))
        added = self._nodes.added[leaves].sum(axis=0) * (self.file.calibration.slope / len(self._nodes.roots))
        beyond = (values < self._lowest) | (values > self._highest)
        return CollapseRisk(
            probability=self._probability(float(added.sum())) if is_known.any() else math.nan,
            drivers=np.where(is_known, added, np.nan),
            outside=np.bincount(self._inputs, beyond, minlength=N_INPUTS) > 0 if beyond.any() else NONE,
        )

    def probabilities(self, features: Values) -> Values:
        """Return the probability at each of many features [M, FeatureKind x INPUTS], in one pass."""
        values = features[:, self._places]
        leaves = self._nodes.leaves(np.where(np.isnan(values), self._medians, values))
        added = self._nodes.added.sum(axis=1)[leaves].mean(axis=1) * self.file.calibration.slope
        return np.array([self._probability(log_odds) for log_odds in added.tolist()])

    def _probability(self, added: float) -> float:
        return 1.0 / (1.0 + math.exp(-self.file.calibration.intercept - added))

    @cached_property
    def _places(self) -> npt.NDArray[np.intp]:
        return np.array([FEATURE_NAMES.index(feature.name) for feature in self.file.features], np.intp)

    @cached_property
    def _inputs(self) -> npt.NDArray[np.intp]:
        return self._places % N_INPUTS

    @cached_property
    def _medians(self) -> Values:
        return np.array([feature.median for feature in self.file.features])

    @cached_property
    def _lowest(self) -> Values:
        return np.array([feature.lowest for feature in self.file.features])

    @cached_property
    def _highest(self) -> Values:
        return np.array([feature.highest for feature in self.file.features])

    @cached_property
    def _nodes(self) -> ForestNodes:
        return forest_nodes(self.file.trees, input_of=self._inputs)


def decode_model(encoded: bytes) -> RiskModel:
    """Return the model in a file. Errors: InvalidInput naming what is wrong with it."""
    return RiskModel(decode_model_file(encoded))


@lru_cache(maxsize=1)
def shipped_model() -> RiskModel:
    """Return the model that is part of the package."""
    return decode_model(files("trmon.domain.collapse_risk").joinpath("model.json").read_bytes())
