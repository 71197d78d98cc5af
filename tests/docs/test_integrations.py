"""The pages of integrations name the versions that their tests run with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAID = {
    "trl": [("trl.md", "{trl} (transformers {transformers})")],
    "trl-oldest": [("trl.md", "{trl} (transformers {transformers})")],
    "examples": [
        ("scalars.md", "transformers {transformers} and Lightning {lightning}, "),
        ("scalars.md", "wandb {wandb} and trackio {trackio}, "),
    ],
    **{
        name: [(f"{name}.md", f"{{{name}}}"), ("index.md", f"{{{name}}}")]
        for name in ("skyrl", "openrlhf", "areal", "ms-swift")
    },
}
"""Of each file of requirements, what which page says of its versions."""


@pytest.mark.parametrize("pinned", SAID)
def test_the_pages_name_the_versions_that_are_run(pinned: str) -> None:
    requirements = (ROOT / f"requirements/{pinned}.txt").read_text()
    versions = dict(re.findall(r"^([\w-]+)==([\d.]+)", requirements, re.MULTILINE))
    if "transformers" in versions:
        versions["transformers"] = ".".join(versions["transformers"].split(".")[:2])
    for page, said in SAID[pinned]:
        assert said.format_map(versions) in (ROOT / "docs/integrations" / page).read_text()
