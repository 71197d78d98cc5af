"""What the wheels hold, and what the client imports."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

REPOSITORY = Path(__file__).parents[2]
OURS = ("trmon", "trmon_client")


def wheels(folder: Path) -> dict[str, Any]:
    """Return the files of both wheels: those that are no code by name, and of code the packages of the first level."""
    projects = [str(REPOSITORY / "client"), str(REPOSITORY)]
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(folder), *projects], check=True, cwd=folder)
    found = {}
    for path in sorted(folder.glob("*.whl")):
        names = [name for name in ZipFile(path).namelist() if ".dist-info/" not in name]
        code = [name for name in names if name.endswith(".py")]
        static = Counter(Path(name).suffix for name in names if "/static/" in name)
        found[path.name.split("-")[0]] = {
            "packages": sorted({"/".join(name.split("/")[:2]) for name in code if name.count("/") > 1}),
            "other files": sorted({*names} - {*code} - {name for name in names if "/static/" in name}),
            "kinds of files of the page": sorted(static),
        }
    return found


def imports() -> dict[str, Any]:
    """Return the packages besides Python's own that `import trmon_client` and `init` load."""
    found = {}
    for what, code in (("import", "import trmon_client"), ("init", "import trmon_client; trmon_client.init")):
        program = f"import sys; before = {{*sys.modules}}; {code}; print(*({{*sys.modules}} - before))"
        modules = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        tops = {name.partition(".")[0] for name in modules}
        found[what] = {
            "packages": sorted(top for top in tops if top not in sys.stdlib_module_names and not top.startswith("__")),
            "modules": len(modules),
            "ours": sum(name.split(".")[0] in OURS for name in modules),
        }
    return found
