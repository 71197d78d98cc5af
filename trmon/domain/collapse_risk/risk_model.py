"""The fitted model: a forest of small decision trees whose leaves hold log-odds, calibrated to a probability."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES, N_INPUTS, Values
from trmon.domain.errors import InvalidInput
from trmon_client.core.wire.messages import decodable

FORMAT = 1


class FittedFeature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature that the trees read, its median in the runs that the model was fitted to, and the ends of their range.

    The ends leave a margin; beyond them the model is silent.
    """

    name: str
    median: float
    lowest: float
    highest: float


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision tree; each list has an entry a node, the root first and every node before its children.

    Node i goes to `left[i]` where feature `feature[i]` is at most `threshold[i]`, else to `right[i]`; a leaf has
    `left[i] == 0`. `log_odds[i]` is that of the moments of the runs that reached the node, against the root.
    """

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    log_odds: tuple[float, ...]


class RiskCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log-odds of the risk = intercept + slope x mean over the trees of the leaf's log-odds."""

    intercept: float
    slope: float


class FleetCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a fleet's own ended runs: the `probability` at each `risk` of the model, both rising.

    Between the points it is linear. `low` and `high` are the ends of its 90% interval over runs.
    """

    runs: int
    collapses: int
    risk: tuple[float, ...]
    probability: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@decodable
class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a model; `fitted_on` names the data and the command of the fit.

    `warn_at` and `page_at` are probabilities that a tenth and a twentieth of the runs without a collapse reach;
    `most_reward_error` is the largest `reward_error` of the runs that it was fitted to. `fleet` is what
    `trmon risk calibrate` adds.
    """

    format: int
    name: str
    fitted_on: dict[str, Any]
    warn_at: float
    page_at: float
    calibration: RiskCalibration
    most_reward_error: float
    fleet: FleetCalibration | None = None
    features: tuple[FittedFeature, ...]
    trees: tuple[Tree, ...]


def _problems(file: ModelFile) -> Iterator[str]:
    if file.format != FORMAT:
        yield f"has format {file.format}; this version reads {FORMAT}"
    if not file.features or not file.trees:
        yield "has no features or no trees"
    for feature in file.features:
        if feature.name not in FEATURE_NAMES:
            yield f"reads {feature.name!r}, which is not computed; fit it with this version"
    for place, tree in enumerate(file.trees):
        if not _is_tree(tree, n_features=len(file.features)):
            yield f"has a tree {place} whose nodes do not fit together"


def _is_tree(tree: Tree, *, n_features: int) -> bool:
    n = len(tree.feature)
    if not n or any(len(column) != n for column in (tree.threshold, tree.left, tree.right, tree.log_odds)):
        return False
    nodes = zip(range(n), tree.feature, tree.left, tree.right, strict=True)
    return all(
        0 <= feature < n_features and ((left == right == 0) or (node < left < n and node < right < n))
        for node, feature, left, right in nodes
    )


Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ForestNodes:
    """The nodes of all trees, numbered through, splits before leaves, so that only splits are evaluated.

    `roots` [trees]; `feature`, `threshold`, `if_at_most`, `if_above` [splits]; `leaf_nodes` [leaves], their numbers.
    `added` [nodes, INPUTS] is what the path from the root to a node adds to the log-odds, by the input of each split.
    """

    roots: Places
    feature: Places
    threshold: Values
    if_at_most: Places
    if_above: Places
    leaf_nodes: Places
    added: Values
    depth: int

    def leaves(self, values: Values) -> Places:
        """Return the leaf of each tree, [..., trees], for known features [..., features]."""
        n_splits = len(self.feature)
        onwards = np.empty((*values.shape[:-1], len(self.added)), np.intp)  # a leaf leads to itself
        onwards[..., :n_splits] = np.where(values[..., self.feature] <= self.threshold, self.if_at_most, self.if_above)
        onwards[..., n_splits:] = self.leaf_nodes
        if values.ndim == 1:
            node = self.roots
            for _ in range(self.depth):
                node = onwards[node]
            return node
        node = np.broadcast_to(self.roots, (*values.shape[:-1], len(self.roots)))
        for _ in range(self.depth):
            node = np.take_along_axis(onwards, node, axis=-1)
        return node


def _paths(tree: Tree, *, input_of: Places) -> tuple[Values, int]:
    """Return what the path to each node adds by input, [nodes, INPUTS], and the number of splits to the deepest."""
    added, depths = np.zeros((len(tree.feature), N_INPUTS)), [0] * len(tree.feature)
    for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
        for child in (left, right) if left else ():
            added[child] = added[node]
            added[child, input_of[tree.feature[node]]] += tree.log_odds[child] - tree.log_odds[node]
            depths[child] = depths[node] + 1
    return added, max(depths)


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
        leaves = self._nodes.leaves(np.where(known, values, self._ranges[0]))
        added = self._nodes.added[leaves].sum(axis=0) * (self.file.calibration.slope / len(self._nodes.roots))
        _, lowest, highest = self._ranges
        beyond = (values < lowest) | (values > highest)
        return CollapseRisk(
            probability=self._probability(float(added.sum())) if is_known.any() else math.nan,
            drivers=np.where(is_known, added, np.nan),
            outside=np.bincount(self._inputs, beyond, minlength=N_INPUTS) > 0 if beyond.any() else NONE,
        )

    def probabilities(self, features: Values) -> Values:
        """Return the probability at each of many features [M, FeatureKind x INPUTS], in one pass."""
        values = features[:, self._places]
        leaves = self._nodes.leaves(np.where(np.isnan(values), self._ranges[0], values))
        added = self._nodes.added.sum(axis=1)[leaves].mean(axis=1) * self.file.calibration.slope
        return np.array([self._probability(log_odds) for log_odds in added.tolist()])

    def _probability(self, added: float) -> float:
        return self.of_risk(1.0 / (1.0 + math.exp(-self.file.calibration.intercept - added)))

    def of_risk(self, risk: float) -> float:
        """Return the probability that the fleet's runs give a risk; the risk itself without such a calibration."""
        fleet = self.file.fleet
        return risk if fleet is None else float(np.interp(risk, fleet.risk, fleet.probability))

    @cached_property
    def _places(self) -> npt.NDArray[np.intp]:
        return np.array([FEATURE_NAMES.index(feature.name) for feature in self.file.features], np.intp)

    @cached_property
    def _inputs(self) -> npt.NDArray[np.intp]:
        return self._places % N_INPUTS

    @cached_property
    def _ranges(self) -> Values:
        """The median, the lowest and the highest value of each feature, [3, features]."""
        return np.array([(feature.median, feature.lowest, feature.highest) for feature in self.file.features]).T.copy()

    @cached_property
    def _nodes(self) -> ForestNodes:
        roots, children, added, depth = list[int](), list[tuple[int, int]](), list[Values](), 0
        is_split = np.array([left != 0 for tree in self.file.trees for left in tree.left])
        for tree in self.file.trees:
            first = len(children)
            roots.append(first)
            of_tree, deepest = _paths(tree, input_of=self._inputs)
            added.append(of_tree)
            depth = max(depth, deepest)
            for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
                children.append((first + (left or node), first + (right or node)))
        order = np.argsort(~is_split, kind="stable")
        number_of = np.argsort(order)
        if_at_most, if_above = number_of[np.array(children, np.intp)[is_split].T]
        return ForestNodes(
            roots=number_of[roots],
            feature=np.array([feature for tree in self.file.trees for feature in tree.feature], np.intp)[is_split],
            threshold=np.array([threshold for tree in self.file.trees for threshold in tree.threshold])[is_split],
            if_at_most=if_at_most,
            if_above=if_above,
            leaf_nodes=np.arange(int(is_split.sum()), len(order)),
            added=np.concatenate(added)[order],
            depth=depth,
        )


def decode_model(encoded: bytes) -> RiskModel:
    """Return the model in a file. Errors: InvalidInput naming what is wrong with it."""
    try:
        file = msgspec.json.decode(encoded, type=ModelFile)
    except msgspec.MsgspecError as error:
        raise InvalidInput("model", f"is not a model of collapse: {error}") from error
    for problem in _problems(file):
        raise InvalidInput("model", problem)
    return RiskModel(file)


@lru_cache(maxsize=1)
def shipped_model() -> RiskModel:
    """Return the model that is part of the package."""
    return decode_model(files("trmon.domain.collapse_risk").joinpath("model.json").read_bytes())


_given: list[RiskModel] = []


def use_model(model: RiskModel | None) -> None:
    """Predict with a model in this process, such as one calibrated on a fleet; None: the shipped one."""
    _given[:] = [] if model is None else [model]


def model_in_use() -> RiskModel:
    """Return the model that predicts in this process."""
    return _given[0] if _given else shipped_model()
