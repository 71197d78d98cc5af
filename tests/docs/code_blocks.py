"""The code blocks of the README files and of the documentation, and the tests that pages name."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{folder}README.md" for folder in ("", "client/", "examples/")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n(?:\n(?=    ))?)+")
COMMAND = re.compile(
    r"(createdb|curl|deploy/\S+|docker|duckdb|export|kubectl|make|mv|pg_\w+|pip|psql|pytest|python|systemd-run|trmon) "
)


@dataclass(frozen=True)
class Block:
    """A block, its language ("sh" and "python" also where the page names none), and the section that it is in."""

    page: str
    line: int
    language: str
    text: str
    section: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """Yield the blocks of all pages in these languages."""
    for path in PAGES:
        page = path.read_text()
        # An indented block has no fence; text in place of the fenced ones keeps its lines.
        unfenced = FENCED.sub(lambda found: re.sub(r"[^\n]", "-", found[0]), page)
        for found in (*FENCED.finditer(page), *INDENTED.finditer(unfenced)):
            is_fenced = found.re is FENCED
            text = textwrap.dedent(found[3] if is_fenced else found[0])
            language = {"bash": "sh"}.get(found[2], found[2]) if is_fenced else _language_of(text)
            if language in languages:
                begins = max(page.rfind("\n## ", 0, found.start()), 0)
                section = page[begins:].removeprefix("\n## ").split("\n## ")[0]
                line = page.count("\n", 0, found.start()) + 1
                yield Block(str(path.relative_to(ROOT)), line, language, text, section)


def holding(text: str) -> list[Block]:
    """Return the blocks of Python that hold a text."""
    return [block for block in blocks("python") if text in block.text]


def _language_of(text: str) -> str:
    if COMMAND.match(text):
        return "sh"
    try:
        ast.parse(runnable(text))
    except SyntaxError:
        return "text"
    return "python"


def runnable(text: str) -> str:
    """Return Python in which the arguments that a block leaves out, as `f(a=1, ...)`, are `**more`."""
    return text.replace(", ...)", ", **more)").replace("(..., ", "(**more, ")


def lines(block: Block) -> Iterator[str]:
    """Yield the commands of a block, each with its continuations: of a line, or of an open quote."""
    for line in re.split(r"\n(?=(?:[^']*'[^']*')*[^']*$)", re.sub(r"\\\n\s*", "", block.text)):
        if line.strip():
            yield line.strip()


@cache
def functions_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file, none if there is no file."""
    file = ROOT / path
    nodes = ast.walk(ast.parse(file.read_text())) if file.is_file() else ()
    names = (node.name for node in nodes if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in names if name.startswith("test_"))
