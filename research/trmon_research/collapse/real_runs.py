"""The shipped model on real logs that an expert has read: where it speaks, and whom it would warn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trmon.domain.analysis.logged_run import read_logged_run
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.signals.run_features import RunFeatures
from trmon.logs.source import LogSource
from trmon_research.judgement.folded import CATALOGUE
from trmon_research.judgement.real_runs import HEALTHY, ILL, UNINFORMATIVE, readings

CLAUSE = CATALOGUE.by_key["collapse_risk.risk"]


def coverage_rows(folder: Path) -> Iterator[list[str]]:
    """Yield of each verdict: logs, rows, the share at which the model speaks, its highest risk, and the logs warned."""
    warn_at, risks = shipped_model().file.warn_at, dict[str, list[np.ndarray]]()
    for reading in readings(folder):
        risks.setdefault(reading.verdict, []).append(_risks(folder / "runs" / f"{reading.id}.jsonl"))
    for verdict in (HEALTHY, ILL, UNINFORMATIVE):
        of = risks.get(verdict, [])
        rows, spoken = sum(map(len, of)), sum(int(np.isfinite(each).sum()) for each in of)
        logs = sum(bool(np.isfinite(each).any()) for each in of)
        highest = max((float(np.nanmax(each)) for each in of if np.isfinite(each).any()), default=float("nan"))
        warned = sum(_stands(each > warn_at) for each in of)
        share = f"{spoken} ({spoken / max(rows, 1):.1%}, in {logs} logs)"
        yield [verdict, str(len(of)), str(rows), share, f"{highest:.2f}", f"{warned} of {len(of)}"]


def _risks(path: Path) -> np.ndarray:
    """Return the risk at each row of a log, NaN where the model is silent."""
    source, features, found = LogSource.of(path), RunFeatures(), []
    for row in read_logged_run(source.items(), source.survey, source=path.stem).rows:
        features = features.with_step(row.values, scalars={})
        found.append(features.signals().get(RISK, np.nan))
    return np.array(found)


def _stands(above: np.ndarray) -> bool:
    """Whether the finding `collapse_risk` stands at any row."""
    hold = CLAUSE.hold
    return bool((np.convolve(above, np.ones(hold.rows))[: len(above)] >= hold.needed).any())
