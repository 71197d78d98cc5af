"""Print the direct dependencies of both packages, for `make lock` to pin."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECTS = (ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml")


def direct_dependencies() -> list[str]:
    """Return the requirements of both packages and of their build, without the packages themselves."""
    names = ["editables"]  # what hatchling needs for `pip install -e` without build isolation
    for path in PROJECTS:
        table = tomllib.loads(path.read_text())
        names += [*table["project"]["dependencies"], *table["build-system"]["requires"]]
    return sorted({name for name in names if not name.startswith("trmon")})


if __name__ == "__main__":
    print("\n".join(direct_dependencies()))
