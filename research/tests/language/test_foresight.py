"""What a risk foretold: which moments count, and the figures of runs that collapse, stay well, or are silent."""

from __future__ import annotations

import numpy as np

from trmon_research.language.foresight import Foretold, risk_figures


def foretold(
    name: str, *, evaluated: dict[int, float], begins: int = 0, risk: float = 0.01, late: float = 0.01
) -> Foretold:
    """Return a run of 140 updates with one risk until update 70 and another from it on, silent before update 60."""
    values = np.full(140, np.nan)
    values[60:70], values[70:] = risk, late
    return Foretold(name, begins, values, evaluated)


WELL = {9: 0.4, 69: 0.6, 139: 0.7}
COLLAPSES = {9: 0.4, 69: 0.6, 89: 0.1}


def test_moments_begin_with_the_fault_and_end_with_the_collapse_or_where_no_fall_could_last() -> None:
    well, ill = foretold("well", evaluated=WELL), foretold("ill", evaluated=COLLAPSES, begins=75)
    assert (well.onset, well.was_never_hurt, list(well.moments)) == (None, True, [60, 70, 80, 90, 100, 110])
    assert ill.onset is not None
    assert 89 < ill.onset < 100
    assert (ill.was_never_hurt, list(ill.moments)) == (False, [80, 90])
    short = foretold("short", evaluated={9: 0.4, 69: 0.6, 125: 0.1})
    assert short.onset is None, "a fall must last 20 updates"
    assert list(short.moments) == [], "whether one that is open at the end would have lasted is not known"


def test_the_figures_count_silence_as_no_risk() -> None:
    runs = [
        foretold("ill", evaluated=COLLAPSES, begins=70, late=0.9),
        foretold("silent", evaluated=COLLAPSES, begins=70, late=np.nan),
        foretold("well", evaluated=WELL),
        foretold("alarmed", evaluated=WELL, risk=0.9),
    ]
    rows = risk_figures(runs)
    assert rows["moments, and the runs with a collapse among them"] == "18, 2 of 4"
    assert rows["coverage: moments at which it speaks"].startswith("83%")
    assert rows["collapses found, at the threshold of a warning"].startswith("1 of 2: 50%")
    assert rows["never-hurt runs alarmed, at the threshold of a warning"].startswith("1 of 2: 50%")
    # The 6 moments of collapses are 3 of 0.9 and 3 silent, the 12 others one of 0.9 and 11 of 0.01.
    assert rows["AUROC"].startswith(f"{(3 * (11 + 0.5)) / 72:.3f}")
