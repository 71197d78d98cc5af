"""What figures are of: digests of the code and the data that made them, so that a figure that is older is noticed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import trmon
import trmon_research

DOMAIN, RESEARCH = Path(trmon.__path__[0]) / "domain", Path(trmon_research.__path__[0])
RULES = ("catalogue", "judge", "measures", "memory", "onset")
"""The modules that decide which findings a run has."""
DATA = RESEARCH.parent / "data"


def digest_of_rules() -> str:
    """Return the digest of the rules, of the judge, and of what fits its model and labels its runs."""
    files = [DOMAIN / "findings" / f"{name}.py" for name in RULES]
    files += [DOMAIN / "collapse_risk" / f"{name}.py" for name in ("risk_inputs", "risk_model", "risk_reading")]
    fits = [
        RESEARCH / "collapse" / f"{name}.py" for name in ("fitting", "moments", "severity", "stored_runs", "validation")
    ]
    rules = [DOMAIN / "findings" / "findings.yaml", DATA / "runs" / "manifest.jsonl"]
    return _digest([*files, DOMAIN / "pipeline" / "judging.py", RESEARCH / "judgement" / "folded.py", *fits, *rules])


def digest_of_page() -> str:
    """Return the digest of all that the page of the benchmark is made of."""
    model = DOMAIN / "collapse_risk" / "model.json"
    told = [path for path in (DATA / "told.json",) if path.exists()]
    stored = [*sorted((DATA / "pairs").glob("*.json")), DATA / "rivals.json", *told]
    code = (RESEARCH / "collapse").rglob("*.py")
    return _digest(
        [*code, RESEARCH / "collapse" / "report_template.md", model, *stored, DATA / "runs" / "manifest.jsonl"]
    )


def _digest(paths: Iterable[Path]) -> str:
    found = sha256()
    for path in sorted(paths):
        found.update(_code(path) if path.suffix == ".py" else path.read_bytes())
    return found.hexdigest()[:16]


def _code(path: Path) -> bytes:
    """Return what a module does: neither comments nor docstrings nor layout, nor where its names are imported from."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
            node.body = [one for one in node.body if not _is_text_or_import(one)] or [ast.Pass()]
    return ast.dump(tree).encode()


def _is_text_or_import(statement: ast.stmt) -> bool:
    """Whether a statement is an import or a docstring, of an attribute too."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return is_text or isinstance(statement, ast.Import | ast.ImportFrom)
