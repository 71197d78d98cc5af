"""One row of the table of formulas, and the sections it may stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Formula(NamedTuple):
    """One row: `test` is below `tests`; `source` is given where the docstring does not say it.

    `function` is within `trmon_client.core`, or within `trmon.domain` if that is how it begins.
    """

    section: str
    name: str
    formula: str
    function: str
    test: str
    source: str = ""


PAIRS, VALIDITY = "1. Policies and pairs", "2. Valid, invalid and suspicious tokens"
COLUMNS, DIVERGENCES = "3. Columns of a sequence", "4. Divergences from logits"
SIGNALS_OF_A_BATCH, ACCEPTANCE, BOUNDS = "5. Signals of a batch", "6. Acceptance", "7. Error bounds"
ADAPTATION, HEALTH = "8. Adaptation and advice", "9. Health and its causes"
COLLAPSE, BUDGETS = "10. Collapse", "11. Routing of experts and budgets"


def rows(section: str, formulas: Mapping[str, str], function: str, test: str) -> Iterator[Formula]:
    """Yield the row of each formula, by its name, that one function computes and one test holds."""
    return (Formula(section, name, text, function, test) for name, text in formulas.items())
