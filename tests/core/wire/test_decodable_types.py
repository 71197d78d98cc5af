"""Types decoded at run time are prepared at import, before any thread decodes one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trmon
import trmon_client

FILES = [path for package in (trmon, trmon_client) for path in Path(package.__path__[0]).rglob("*.py")]
RACE = """
import dataclasses, sys, threading, typing
import msgspec
from trmon_client.core.wire.messages import decodable

sys.setswitchinterval(1e-6)
fields = [f"field_{i}" for i in range(60)]
document = {name: {"a": 1} for name in fields}

def read(kind, barrier):
    barrier.wait()
    for _ in range(3): msgspec.convert(document, kind)

for _ in range(200):
    kind = dataclasses.make_dataclass("Kind", [(name, "typing.Optional[dict[str, int]]") for name in fields])
    kind.__module__ = __name__
    decodable(kind)
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(kind, barrier)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
"""Without `decodable` the process ends with a segmentation fault."""


def _types_named_at_run_time(sources: dict[Path, ast.Module]) -> Iterator[tuple[Path, str]]:
    """Yield the file and the name of each class that a call of `convert` or `decode` names."""
    for path, tree in sources.items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                given = [word.value for word in call.keywords if word.arg == "type"]
                given += call.args[1:2] if call.func.attr == "convert" else []
                if call.func.attr in ("convert", "decode"):
                    yield from (
                        (path, name.id) for one in given for name in ast.walk(one) if isinstance(name, ast.Name)
                    )


def _decodable(sources: dict[Path, ast.Module]) -> set[str]:
    """Return the names of the classes decorated with `decodable`."""
    classes = (node for tree in sources.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {
        one.name for one in classes if any(isinstance(d, ast.Name) and d.id == "decodable" for d in one.decorator_list)
    }


def test_every_type_named_at_run_time_is_prepared_at_import() -> None:
    built_in = {"dict", "list", "tuple", "str", "int", "object", "Any", "Names", "_VALUE_TYPES", "mapping"}
    built_in.add("kind")  # of trmon_client.api, which decodes one answer at a time
    sources = {
        path: ast.parse(text) for path in FILES if "msgspec" in (text := path.read_text()) or "decodable" in text
    }
    named, known = list(_types_named_at_run_time(sources)), built_in | _decodable(sources)
    assert {name for _, name in named} >= {"Advice", "Matcher", "Manifest", "Quarantined", "_Mappings"}
    assert [(path.name, name) for path, name in named if name not in known] == []


def test_threads_can_decode_a_type_for_the_first_time_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
