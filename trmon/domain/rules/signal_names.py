"""Signal names: which names rules may read, and suggestions for unknown ones."""

from __future__ import annotations

from difflib import get_close_matches
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
    "router_flip_rate",
    "vf_explained_var",
)
"""Trainer scalars with a common name; others are written scalar:NAME. Source: formulas, section 5."""


def is_known_signal(name: str) -> bool:
    """Whether rules may read a name: a signal with or without its pair, or a trainer scalar."""
    return name in _signals() or is_scalar(name) or (name.startswith(SHADOW_PREFIX) and name != SHADOW_PREFIX)


def is_scalar(name: str) -> bool:
    """Whether a name is a trainer scalar."""
    return name in TRAINER_SCALARS or (name.startswith(SCALAR_PREFIX) and name != SCALAR_PREFIX)


def did_you_mean(name: str) -> str:
    """Return a suggestion of similar known names for an error text; empty if no name is similar."""
    near = get_close_matches(name, [*_signals(), *TRAINER_SCALARS], n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def signal_name_pattern() -> str:
    """Return a regular expression that matches all names that rules may read."""
    names = "|".join(sorted({*_signals(), *TRAINER_SCALARS}))
    return f"^({names}|({SCALAR_PREFIX}|{SHADOW_PREFIX}).+)$"


@cache
def _signals() -> frozenset[str]:
    stems = {spec.stem for spec in SIGNALS.values()}
    derived = {name.removeprefix(f"{pair}_") for name in DERIVED for pair in PAIRS}
    return frozenset(SIGNALS.keys() | stems | DERIVED.keys() | derived)
