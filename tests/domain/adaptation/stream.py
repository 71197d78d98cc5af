"""Simulated runs: batches of columns whose statistics have quantiles that can be written down."""

from __future__ import annotations

import math

import numpy as np

from tests.fixtures.messages import columns
from trmon.domain.adaptation.proposal import PolicySample
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.policy import Policy

TOKENS = 16

K3 = Policy("k3", (Criterion("mean_k3", "total", upper=0.01),))
GEO = Policy("geo", (Criterion("geo_ratio", "total", 0.99, 1.01),))
BOTH = Policy("both", (Criterion("mean_k3", "total", upper=0.01), Criterion("geo_ratio", "total", 0.99, 1.01)))


def batch(random: np.random.Generator, *, n: int = 256, k3: float = 0.002, drift: float = 0.003) -> Columns:
    """Return n sequences: mean_k3 is exponential of mean `k3`, log geo_ratio normal of deviation `drift`."""
    return columns(
        n,
        total_sum_k3=TOKENS * random.exponential(k3, n),
        total_sum_d=TOKENS * random.normal(0.0, drift, n),
        advantage=random.normal(size=n),
    )


def sample(policy: Policy, *, n: int = 4096, seed: int = 0, k3: float = 0.002, drift: float = 0.003) -> PolicySample:
    return PolicySample.of(batch(np.random.default_rng(seed), n=n, k3=k3, drift=drift), policy)


def k3_quantile(mask_rate: float, *, k3: float = 0.002) -> float:
    """Return the value that a share of the sequences' mean_k3 exceeds."""
    return -k3 * math.log(mask_rate)
