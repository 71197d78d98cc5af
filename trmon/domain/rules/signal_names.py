"""Signal names: which names rules may read, and which the history of a run may hold."""

from __future__ import annotations

from functools import cache

from trmon.domain.rules.signal_reader import SCALAR_PREFIX
from trmon.domain.signals.derived_signals import DERIVED, SHADOW_PREFIX
from trmon_client.core.columns.schema import PAIRS
from trmon_client.core.signals.batch_signals import SIGNALS

TRAINER_SCALARS = (
    "entropy",
    "grad_cosine",
    "grad_norm",
    "grad_variance",
    "lr",
    "max_vio",
    "router_flip_rate",
    "vf_explained_var",
)
"""Trainer scalars with a common name; others are written scalar:NAME. Source: formulas, section 5."""


def is_known_signal(name: str) -> bool:
    """Whether rules may read a name: a signal with or without its pair, or a trainer scalar."""
    return name in signal_names() or is_scalar(name) or (name.startswith(SHADOW_PREFIX) and name != SHADOW_PREFIX)


def is_scalar(name: str) -> bool:
    """Whether a name is a trainer scalar."""
    return name in TRAINER_SCALARS or (name.startswith(SCALAR_PREFIX) and name != SCALAR_PREFIX)


def signal_name_pattern() -> str:
    """Return a regular expression that matches all names that rules may read."""
    names = "|".join(sorted(signal_names()))
    return f"^({names}|({SCALAR_PREFIX}|{SHADOW_PREFIX}).+)$"


@cache
def series_names() -> frozenset[str]:
    """Return the full names of all signals, and the scalars with a common name: any run may come to hold them."""
    return frozenset((*SIGNALS, *DERIVED, *TRAINER_SCALARS))


@cache
def signal_names() -> frozenset[str]:
    """Return the names that rules may read: signals with and without their pair, and scalars with a common name."""
    stems = {spec.stem for spec in SIGNALS.values()}
    derived = {name.removeprefix(f"{pair}_") for name in DERIVED for pair in PAIRS}
    return frozenset(series_names() | stems | derived)
