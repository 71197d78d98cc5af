"""The nodes of all trees of a forest in arrays, which finds the leaves of a moment without a loop over trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.model_file import Tree
from trmon.domain.collapse_risk.risk_inputs import N_INPUTS, Values

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


def forest_nodes(trees: Sequence[Tree], *, input_of: Places) -> ForestNodes:
    """Return the nodes of trees. Args: input_of [features]: the input of each feature."""
    roots, children, added, depth = list[int](), list[tuple[int, int]](), list[Values](), 0
    is_split = np.array([left != 0 for tree in trees for left in tree.left])
    for tree in trees:
        first = len(children)
        roots.append(first)
        of_tree, deepest = _paths(tree, input_of=input_of)
        added.append(of_tree)
        depth = max(depth, deepest)
        for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
            children.append((first + (left or node), first + (right or node)))
    order = np.argsort(~is_split, kind="stable")
    number_of = np.argsort(order)
    if_at_most, if_above = number_of[np.array(children, np.intp)[is_split].T]
    return ForestNodes(
        roots=number_of[roots],
        feature=np.array([feature for tree in trees for feature in tree.feature], np.intp)[is_split],
        threshold=np.array([threshold for tree in trees for threshold in tree.threshold])[is_split],
        if_at_most=if_at_most,
        if_above=if_above,
        leaf_nodes=np.arange(int(is_split.sum()), len(order)),
        added=np.concatenate(added)[order],
        depth=depth,
    )


def _paths(tree: Tree, *, input_of: Places) -> tuple[Values, int]:
    """Return what the path to each node adds by input, [nodes, INPUTS], and the number of splits to the deepest."""
    added, depths = np.zeros((len(tree.feature), N_INPUTS)), [0] * len(tree.feature)
    for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
        for child in (left, right) if left else ():
            added[child] = added[node]
            added[child, input_of[tree.feature[node]]] += tree.log_odds[child] - tree.log_odds[node]
            depths[child] = depths[node] + 1
    return added, max(depths)
