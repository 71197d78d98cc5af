"""What is shipped is what was generated, in a checkout and in a package."""

from __future__ import annotations

from pathlib import Path

import tomllib

from dashboards.source.__main__ import generated
from trmon.grafana.push import shipped

ROOT = Path(__file__).parents[2]


def test_every_generated_dashboard_is_shipped() -> None:
    names = _shipped_names()
    assert {dashboard["uid"] for dashboard in shipped()} == {f"trmon-{Path(name).stem}" for name in names}


def test_a_wheel_carries_them_where_they_are_looked_for() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    names = _shipped_names()
    assert build["targets"]["wheel"]["force-include"] == {
        f"dashboards/{name}": f"trmon/grafana/dashboards/{name}" for name in names
    }


def _shipped_names() -> list[str]:
    """Return the dashboards over Prometheus; the one over PostgreSQL is imported by hand."""
    return [path for path in generated() if path.endswith(".json") and "/" not in path]
