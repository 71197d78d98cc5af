"""The file of a model: features, trees and calibration, as JSON that a person can read and a diff can show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trmon.domain.collapse_risk.risk_features import FEATURE_NAMES
from trmon.domain.model.errors import InvalidInput
from trmon_client.core.wire.decodable_types import decodable

FORMAT = 1


class FittedFeature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature that the trees read, and its median and range in the runs that the model was fitted to."""

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


@decodable
class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file of a model holds; `fitted_on` says on what and by what command it was fitted.

    `warn_at` and `page_at` are probabilities that a tenth and a twentieth of the runs without a collapse reach.
    """

    format: int
    name: str
    fitted_on: dict[str, Any]
    warn_at: float
    page_at: float
    calibration: RiskCalibration
    features: tuple[FittedFeature, ...]
    trees: tuple[Tree, ...]


def decode_model_file(encoded: bytes) -> ModelFile:
    """Return a file that can be evaluated. Errors: InvalidInput naming what is wrong with it."""
    try:
        file = msgspec.json.decode(encoded, type=ModelFile)
    except msgspec.MsgspecError as error:
        raise InvalidInput("model", f"is not a model of collapse: {error}") from error
    for problem in _problems(file):
        raise InvalidInput("model", problem)
    return file


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
