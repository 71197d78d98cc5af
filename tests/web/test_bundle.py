"""The committed bundle of the page is built from its sources."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from trmon.web.assets import ASSETS

WEB = Path(__file__).parents[2] / "trmon" / "web"
BUNDLES = ("app.js", "budget.js", "page.css")
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"


@pytest.mark.skipif(
    not (ESBUILD.exists() and shutil.which("node")),
    reason="esbuild is not installed; `make test-deps` installs it where npm is",
)
def test_the_bundle_is_current(tmp_path: Path) -> None:
    script = json.loads((WEB / "package.json").read_text())["scripts"]["build"].split()
    command = [str(ESBUILD), *script[1:-1], f"--outdir={tmp_path}"]
    subprocess.run(command, cwd=WEB, check=True, capture_output=True)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built == {name: ASSETS[name].content for name in BUNDLES}, "run `make web`"


def test_the_bundle_loads_nothing_else() -> None:
    for name in ("app.js", "budget.js"):
        assert b"import " not in ASSETS[name].content.split(b"\n\n")[0]
    assert "@import" not in ASSETS["page.css"].content.decode()


def test_every_source_is_part_of_the_bundle() -> None:
    bundles = {name: ASSETS[name].content.decode() for name in BUNDLES}
    missing = [
        path.name
        for path in sorted((WEB / "src").iterdir())
        if path.name != "page.css"
        and all(f"// src/{path.name}" not in bundles[name] for name in ("app.js", "budget.js"))
        and f"/* src/{path.name} */" not in bundles["page.css"]
    ]
    assert not missing


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (WEB / "package-lock.json").read_text()
