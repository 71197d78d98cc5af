"""Public names: each class and module-level function of trmon_client has one meaning."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "client" / "trmon_client"
STANDS_FOR_WANDB = PACKAGE / "integrations" / "trackers.py"
"""Its names are those of wandb and trackio."""
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def public_definitions(module: Path) -> Iterator[str]:
    """Yield the public classes and functions that a module defines, also those under an `if` or a `try`."""
    blocks = [ast.parse(module.read_text("utf-8")).body]
    while blocks:
        for node in blocks.pop():
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                yield node.name
            elif isinstance(node, ast.If | ast.Try):
                blocks += [node.body, node.orelse]


def test_no_public_class_or_function_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in sorted({*PACKAGE.rglob("*.py")} - {STANDS_FOR_WANDB}):
        for name in set(public_definitions(module)):
            places[name].append(str(module.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
