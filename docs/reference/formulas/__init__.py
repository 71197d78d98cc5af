"""Which function computes each formula, and which test holds it against an independent computation.

Signals and presets come from their own registries; what else there is stands here. Tests check that every row leads to
a function with a source and to a test, and that nothing is left out.
"""

from __future__ import annotations

from .formula import Formula
from .of_batches import OF_BATCHES
from .of_runs import OF_RUNS
from .of_sequences import OF_SEQUENCES

FORMULAS: tuple[Formula, ...] = (*OF_SEQUENCES, *OF_BATCHES, *OF_RUNS)
"""Every formula of sections 1 to 11."""
