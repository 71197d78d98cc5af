"""Modules and style sheets joined with all that they import: a browser asks for two files instead of fifty."""

from __future__ import annotations

import re
from collections.abc import Mapping

IMPORT = re.compile(r'^import (\{.*\}) from "\./(\w+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
STYLE_IMPORT = re.compile(r'^@import "\./([\w/.-]+)";$', re.MULTILINE)


def bundle_module(path: str, sources: Mapping[str, str]) -> str:
    """Return a module and all that it imports as one, each in a function of its own, so that their names never meet.

    Args: sources: modules by path; an import is one line of named bindings, and what is exported is declared there.
    """
    order: dict[str, None] = {}
    _visit(path, sources, order)
    return "\n".join(_wrapped(module, sources[module]) for module in order)


def bundle_styles(path: str, sources: Mapping[str, str]) -> str:
    """Return a style sheet with those that it imports in their places."""
    return STYLE_IMPORT.sub(lambda found: sources[found[1]], sources[path])


def _visit(path: str, sources: Mapping[str, str], order: dict[str, None]) -> None:
    """Add a module after those that it imports."""
    if path not in order:
        for _, imported in IMPORT.findall(sources[path]):
            _visit(imported, sources, order)
        order[path] = None


def _wrapped(path: str, source: str) -> str:
    body = EXPORT.sub("", IMPORT.sub(_bound, source))
    return f"const {_name(path)} = (() => {{\n{body}return {{ {', '.join(EXPORT.findall(source))} }};\n}})();"


def _bound(found: re.Match[str]) -> str:
    return f"const {found[1].replace(' as ', ': ')} = {_name(found[2])};"


def _name(path: str) -> str:
    return f"${path.removesuffix('.js')}"
