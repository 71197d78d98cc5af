"""The per-sequence statistics that a criterion can bound, computed from the columns of a report.

They use only + - x / and comparisons in float64, over numpy or torch, so that client and service agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trmon_client.core.arrays import Array, functions_of
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import Columns


class PolicyError(ValueError):
    """A policy is invalid, or cannot decide on the given columns; the message states what is required."""


@dataclass(frozen=True, slots=True)
class PairView:
    """The columns of one pair and of the sequence, as float64."""

    columns: Columns
    pair: Pair | None

    def of_pair(self, stem: str) -> Array:
        """Return a column of the pair."""
        return _float64(self.columns[f"{self.pair}_{stem}"])

    def of_sequence(self, name: str) -> Array:
        """Return a column of the sequence. Errors: PolicyError naming the argument that provides it."""
        if name not in self.columns:
            raise PolicyError(f"the policy needs {_ARGUMENT_OF.get(name, name)}, which was not given for this batch")
        return _float64(self.columns[name])

    def of_kl(self, name: str) -> Array:
        """Return a column of the full-vocabulary KL. Errors: PolicyError if it belongs to another pair."""
        column = self.of_sequence(name)
        if self.columns.kl_pair != self.pair:
            raise PolicyError(
                f"the policy needs the KL of {self.pair}, but the logits give the KL of {self.columns.kl_pair}"
            )
        return column

    def lag(self) -> Array:
        """Return trainer_version - version_min. Errors: PolicyError naming the argument that is missing."""
        oldest = self.of_sequence("version_min")
        if self.columns.trainer_version is None:
            raise PolicyError("the policy needs trainer_version, which was not given for this batch")
        return self.columns.trainer_version - oldest

    def larger_abs(self, left: str, right: str) -> Array:
        """Return the larger magnitude of two columns of the pair; NaN propagates."""
        functions = functions_of(self.columns["n_tokens"])
        return functions.at_least(functions.abs(self.of_pair(left)), functions.abs(self.of_pair(right)))

    def max_abs_d(self) -> Array:
        """Return the largest |d|."""
        return self.larger_abs("min_d", "max_d")

    def per_token(self, stem: str) -> Array:
        """Return a sum column of the pair divided by n_tokens."""
        return self.of_pair(stem) / self.of_sequence("n_tokens")


@dataclass(frozen=True, slots=True)
class SequenceStatistic:
    """A statistic: with `is_ratio` it is read and compared as a log; `needs` names arguments besides the log-probs.

    Without `is_of_pair` it needs no log-probs.
    """

    name: str
    read: Callable[[PairView], Array]
    is_ratio: bool = False
    needs: tuple[str, ...] = ()
    is_of_pair: bool = True


_LOGITS = ("rollout_logits", "logits")
_ARGUMENT_OF = {
    "max_kl": " and ".join(_LOGITS),
    "sum_kl": " and ".join(_LOGITS),
    "advantage": "advantages",
    "version_min": "versions",
}

STATISTICS: dict[str, SequenceStatistic] = {
    statistic.name: statistic
    for statistic in (
        SequenceStatistic("max_kl", lambda view: view.of_kl("max_kl"), needs=_LOGITS),
        SequenceStatistic("mean_kl", lambda view: view.of_kl("sum_kl") / view.of_sequence("n_tokens"), needs=_LOGITS),
        SequenceStatistic("max_binary_kl", lambda view: view.of_pair("max_binary_kl")),
        SequenceStatistic("max_abs_d", lambda view: view.max_abs_d()),
        SequenceStatistic("min_ratio", lambda view: view.of_pair("min_d"), is_ratio=True),
        SequenceStatistic("max_ratio", lambda view: view.of_pair("max_d"), is_ratio=True),
        SequenceStatistic("mean_k1", lambda view: -view.per_token("sum_d")),
        SequenceStatistic("sum_k1", lambda view: -view.of_pair("sum_d")),
        SequenceStatistic("mean_k2", lambda view: view.per_token("sum_sq_d") / 2),
        SequenceStatistic("sum_k2", lambda view: view.of_pair("sum_sq_d") / 2),
        SequenceStatistic("max_k2", lambda view: view.max_abs_d() * view.max_abs_d() / 2),
        SequenceStatistic("mean_k3", lambda view: view.per_token("sum_k3")),
        SequenceStatistic("sum_k3", lambda view: view.of_pair("sum_k3")),
        SequenceStatistic("max_k3", lambda view: view.of_pair("max_k3")),
        SequenceStatistic("geo_ratio", lambda view: view.per_token("sum_d"), is_ratio=True),
        SequenceStatistic("seq_ratio", lambda view: view.of_pair("sum_d"), is_ratio=True),
        SequenceStatistic("max_prob_diff", lambda view: view.of_pair("max_prob_diff")),
        SequenceStatistic("prefix_range", lambda view: view.larger_abs("prefix_min_d", "prefix_max_d")),
        SequenceStatistic(
            "version_lag", lambda view: view.lag(), needs=("versions", "trainer_version"), is_of_pair=False
        ),
    )
}
"""The statistics that a criterion can name. Source: formulas, section 6."""


def _float64(array: Array) -> Array:
    return functions_of(array).cast(array, "f8")
