"""Write the software bill of materials (CycloneDX) and the license list of an installed trmon: `make sbom`.

Usage: sbom.py PYTHON FOLDER, where PYTHON is the interpreter of the environment that deploy/install.sh made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

ROOT = Path(__file__).parent.parent
VENDORED = ROOT / "trmon" / "web" / "static" / "vendor"


def bill_of_materials(python: str) -> Bom:
    """Return what is installed in an environment, and what the page brings along."""
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
    ]
    found = subprocess.run([*command, python], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603
    bom = Bom.from_json(json.loads(found))  # type: ignore[attr-defined]
    for path in sorted(VENDORED.glob("*.js")):
        name, _, version = path.stem.rpartition("-")
        url = PackageURL("npm", name=name, version=version)
        licenses = [DisjunctiveLicense(id="MIT")]
        bom.components.add(
            Component(
                name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url), licenses=licenses
            )
        )
    return bom


def license_list(bom: Bom) -> str:
    """Return a Markdown table of each component and its licenses."""
    rows = [(one.name, one.version or "", ", ".join(sorted(_licenses(one))) or "unknown") for one in bom.components]
    lines = [f"| {' | '.join(row)} |" for row in sorted(rows)]
    return "\n".join(["| component | version | license |", "| --- | --- | --- |", *lines, ""])


def _licenses(component: Component) -> set[str]:
    """Return SPDX identifiers where the package names any, otherwise its own words."""
    spdx = {one.value if isinstance(one, LicenseExpression) else one.id for one in component.licenses} - {None}
    named = {one.name for one in component.licenses if isinstance(one, DisjunctiveLicense)}
    return {str(name) for name in spdx or named}


def main(python: str, folder: str) -> None:
    """Write trmon.cdx.json and licenses.md into a folder."""
    bom, target = bill_of_materials(python), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    (target / "trmon.cdx.json").write_text(text + "\n")
    (target / "licenses.md").write_text(license_list(bom))
    print(f"{len(bom.components)} components: {target / 'trmon.cdx.json'}, {target / 'licenses.md'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
