"""The pages of integrations name the versions that their tests run with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pinned", ["trl", "trl-oldest"])
def test_the_page_of_trl_names_the_versions_that_are_run(pinned: str) -> None:
    requirements = (ROOT / "requirements" / f"{pinned}.txt").read_text()
    versions = [re.search(rf"^{name}==([\d.]+)", requirements, re.MULTILINE) for name in ("trl", "transformers")]
    trl, transformers = (found[1] for found in versions if found)
    page = (ROOT / "docs/integrations/trl.md").read_text()
    assert f"{trl} (transformers {'.'.join(transformers.split('.')[:2])})" in page


def test_the_page_of_the_callbacks_names_the_versions_that_are_run() -> None:
    requirements = (ROOT / "requirements/examples.txt").read_text()
    found = dict(re.findall(r"^(transformers|lightning)==([\d.]+)", requirements, re.MULTILINE))
    transformers = ".".join(found["transformers"].split(".")[:2])
    page = (ROOT / "docs/integrations/scalars.md").read_text()
    assert f"transformers {transformers} and Lightning {found['lightning']} " in page


@pytest.mark.parametrize("framework", ["skyrl", "openrlhf", "areal", "ms-swift"])
def test_the_page_of_a_framework_names_the_version_that_is_run(framework: str) -> None:
    requirements = (ROOT / f"requirements/{framework}.txt").read_text()
    found = re.search(rf"^{framework}==([\d.]+)", requirements, re.MULTILINE)
    assert found
    for page in (framework, "index"):
        assert found[1] in (ROOT / f"docs/integrations/{page}.md").read_text()
