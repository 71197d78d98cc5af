"""The outputs of a Jupyter notebook, in the order of its cells.

Tables are those of Hugging Face's notebook callback, which TRL and Unsloth extend: a column `Step` or `Epoch`, then
`Training Loss` and other metrics. Texts are read as console output.
Source: transformers, src/transformers/utils/notebook.py (text_to_html_table); nbformat 4 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trmon.domain.errors import InvalidInput
from trmon.logs.html_tables import Part, parts_of_html, rows_of_parts
from trmon.logs.json_logs import load_json
from trmon.logs.log_format import LogFormat, LogItem, LogSample
from trmon.logs.markdown import tables_found

SUFFIX = ".ipynb"
_START = re.compile(r'\s*\{\s*"(?:cells|metadata|nbformat)"')


def _matches(sample: LogSample) -> bool:
    head = sample.head
    return head.lstrip()[:1] == "{" and (
        sample.path.suffix == SUFFIX or (_START.match(head) is not None and '"cell_type"' in head)
    )


def _read(path: Path) -> Iterator[LogItem]:
    n_cells = n_tables = 0
    has_row = False
    document = load_json(path)
    sheets = (document, *_objects(document.get("worksheets")))  # Those of nbformat 3 have the cells.
    for cell in (cell for sheet in sheets for cell in _objects(sheet.get("cells"))):
        parts = list(_parts(cell))
        n_cells += 1
        n_tables += sum(isinstance(part, list) for part in parts)
        for item in rows_of_parts(parts, path=path):
            has_row = True
            yield item
    if not has_row:
        found = f"is a notebook of {n_cells} cells{tables_found(n_tables)}"
        raise InvalidInput(str(path), f"{found}, and no output with metrics; save the notebook with its outputs")


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _parts(cell: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the tables and texts of the outputs of a cell; of one output in several forms only the richest."""
    text = ""
    for output in _objects(cell.get("outputs")):
        data = next(_objects([output.get("data")]), output)
        html = _text(data.get("text/html") or data.get("html"))
        if html:
            yield text
            text = ""
            yield from parts_of_html(html)
        else:
            # A stream may be cut within a line; other outputs begin one.
            text += "" if output.get("output_type") == "stream" else "\n"
            text += _text(data.get("text/markdown") or data.get("text/plain") or data.get("text"))
    yield text


def _text(value: Any) -> str:
    return "".join(line for line in (value if isinstance(value, list) else [value]) if isinstance(line, str))


NOTEBOOK = LogFormat(
    name="notebook",
    description="a Jupyter notebook (.ipynb) with its outputs",
    matches=_matches,
    read=_read,
    has_lines=False,
)
