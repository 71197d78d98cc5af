"""The page of the benchmark of collapse is of the code and the data that are there."""

from __future__ import annotations

import re
from pathlib import Path

from trmon_research.collapse import provenance
from trmon_research.collapse.provenance import digest_of_page
from trmon_research.collapse.told import read_told

NOT_MEASURED = "Not measured since the rules, the model or the label changed"

PAGE = Path(__file__).parents[3] / "docs" / "collapse-benchmark.md"


def test_no_figure_is_older_than_what_it_is_of() -> None:
    page = PAGE.read_text()
    found = re.search(r"Of: ([0-9a-f]+) -->", page)
    assert found is not None
    assert found[1] == digest_of_page(), "the page is of other code or data: make collapse"
    is_told = NOT_MEASURED not in page.partition("## Messages and pages")[2].partition("## Beside")[0]
    assert not is_told or read_told() is not None, "the messages are of other rules or another model: make collapse"


def test_a_digest_changes_with_what_code_does_and_not_with_its_words_or_imports(tmp_path: Path) -> None:
    path = tmp_path / "code.py"

    def digest(text: str) -> str:
        path.write_text(text)
        return provenance._digest([path])

    first = digest('"""Words."""\nLIMIT = 1\n"""Words."""\n\ndef f() -> int:\n    """Words."""\n    return LIMIT\n')
    assert digest("LIMIT = 1  # other words\n\n\ndef f() -> int:\n    return LIMIT\n") == first
    assert digest("import math\nLIMIT = 1\n\ndef f() -> int:\n    from os import path\n    return LIMIT\n") == first
    assert digest("LIMIT = 2\n\ndef f() -> int:\n    return LIMIT\n") != first
