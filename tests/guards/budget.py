"""The budget of lines and files: python -m tests.guards.budget [--record]

Fails where a package, two levels deep, has more files or lines than budget.toml says, or a file is longer than its
limit: growth is then a line in a diff. `--record` writes what is there now. `__init__.py` counts only with its lines.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import tomllib

BUDGET = Path(__file__).with_name("budget.toml")
REPOSITORY = Path(__file__).parents[2]
PRODUCT = ("trmon", "client/trmon_client", "dashboards")
WEB = "trmon/web"
MAX_LINES_OF_FILE = 500

Counts = dict[str, list[int]]


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write what is there now")
    is_recording = parser.parse_args().record
    now, product = counted()
    if is_recording:
        rows = [f'"{name}" = [{files}, {lines}]' for name, (files, lines) in sorted(now.items())]
        head = "# Files and lines of each package; `python -m tests.guards.budget --record` writes it.\n[packages]\n"
        BUDGET.write_text(head + "\n".join(rows) + "\n")
    known: Counts = tomllib.loads(BUDGET.read_text())["packages"]
    grown = [
        f"{name}: {now[name][at]} {what}, the budget is {known.get(name, [0, 0])[at]}"
        for name in sorted(now)
        for at, what in enumerate(("files", "lines"))
        if now[name][at] > known.get(name, [0, 0])[at]
    ]
    grown += [
        f"{name}: {n} lines, more than {MAX_LINES_OF_FILE}" for name, n in product.items() if n > MAX_LINES_OF_FILE
    ]
    print(*grown, sep="\n", file=sys.stderr)
    sizes = [n for name, n in product.items() if not name.endswith("__init__.py")]
    print(f"product: {len(sizes)} files, {sum(product.values())} lines, median {statistics.median(sizes):.0f}")
    return 1 if grown else 0


def counted() -> tuple[Counts, dict[str, int]]:
    """Return files and lines by package, and the lines of each Python file of the product."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    found: Counts = defaultdict(lambda: [0, 0])
    product: dict[str, int] = {}
    for name in listed.splitlines():
        path = REPOSITORY / name
        is_web = name.startswith(f"{WEB}/") and path.suffix in (".js", ".css", ".html")
        if not (path.suffix == ".py" or is_web) or not path.is_file():
            continue
        n = len(path.read_bytes().splitlines())
        parts = name.removeprefix("client/").split("/")
        package = f"{WEB} (page)" if is_web else "/".join(parts[:-1][:2]) or "."
        found[package][0] += path.name != "__init__.py"
        found[package][1] += n
        if name.startswith(tuple(f"{one}/" for one in PRODUCT)) and path.suffix == ".py":
            product[name] = n
    return dict(found), product


if __name__ == "__main__":
    sys.exit(main())
