"""The documentation builds as a site, and its index of decisions is complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    shown = {
        page.parent / source for page in pages for source in re.findall(r'<img[^>]* src="([^":]+)"', page.read_text())
    }
    assert len(shown) >= 8
    assert not [picture for picture in shown if not picture.is_file()]
    ranks = {
        entry["location"]: entry.get("boost")
        for entry in json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    }
    assert ranks["decisions/0016-order-on-postgresql/"] < 1 == (ranks["alerts/"] or 1)


def test_every_decision_has_a_line_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    missing = [page.name for page in sorted(folder.glob("0*.md")) if f"]({page.name}): " not in index]
    assert not missing


def test_every_path_on_the_architecture_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {path.rstrip("/") for path in re.findall(r"`([\w.-]+/[\w/.-]*)`", page)}
    bases = ("", "trmon", "client/trmon_client")
    missing = {
        path
        for path in named
        if not any((ROOT / base / f"{path}{suffix}").exists() for base in bases for suffix in ("", ".py"))
    }
    assert named
    assert not missing
