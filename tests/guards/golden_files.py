"""Golden files: answers and texts without what changes from run to run, short, and compared with a tolerance."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).parent / "goldens"
LONGEST_LIST = 4
LONGEST_MAPPING = 60
SHOWN = 2
RELATIVE_TOLERANCE = 1e-6
"""Of numbers: another CPU rounds the last digits otherwise."""

TIMES = (1.6e9, 4e9)
VARIES = "<varies>"
SOMETIMES = "behind"
"""How far the judging is behind, which a busy machine makes more than five seconds."""
VARYING_KEYS = re.compile(
    r"(^|_)(step_seconds|seconds_per_step|launch|secret|request_id|idle_seconds|elapsed|elapsed_seconds|next|x-trmon-signature|webhook-id"
    r"|webhook-signature|free_bytes|last_used_at|run_days)$"
)
VARYING_WORDS = [
    (re.compile(pattern), word)
    for pattern, word in (
        (r"127\.0\.0\.1:(?!8642)\d+", "127.0.0.1:<port>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?", "<time>"),
        (r"\w{3}, \d\d? \w{3} \d{4} \d\d:\d\d:\d\d( [+-]\d{4}| GMT)", "<time>"),
        (r"silence-\d+\.\d+", "silence-<time>"),
        (r"\b1[6-9]\d{8}(\.\d+)?\b", "<time>"),
        (r"\b\d\d:\d\d:\d\d\b", "<time>"),
        (r"={5,}\d{6,}={2}", "<boundary>"),
        (r"(trmon\.(message|episode|picture)|msg)[._][0-9a-f]{32}", r"\1.<id>"),
        (r"/tmp/[^\s\"'<>,;:)]+", "<path>"),
        (r"/[\w./-]+(?=/tests/guards/)", "<path>"),
        (r"\b0\.[12]\.\d+(\.dev\d+)?\b", "<version>"),
        (r" *\b[\d.]+ (s|ms|min) ago\b", " <time> ago"),
        (r"\b[\d.e-]+ s each", "<time> each"),
        (r"\bline \d+, in ", "line <n>, in "),
    )
]


def plain(value: Any, key: str = "") -> Any:
    """Return a document without times, ids, ports and paths, long lists as a start and a fingerprint."""
    if VARYING_KEYS.search(key):
        return None if key == "next" and value is None else VARIES
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float | list | dict):
        return value
    if isinstance(value, int | float):
        return (
            "<time>"
            if TIMES[0] < abs(value) < TIMES[1]
            else float(f"{value:.9g}")
            if isinstance(value, float)
            else value
        )
    if isinstance(value, list):
        items = [plain(one, key) for one in value]
        return items if len(items) <= LONGEST_LIST else {"first": items[:SHOWN], **fingerprint(items)}
    named = {name: plain(one, name) for name, one in value.items() if name != SOMETIMES}
    if len(named) <= LONGEST_MAPPING:
        return named
    return {**dict([*named.items()][:SHOWN]), "...": fingerprint(named)}


def plain_text(text: str) -> str:
    """Return a text without times, ids, ports and paths."""
    for pattern, word in VARYING_WORDS:
        text = pattern.sub(word, text)
    return text


def fingerprint(value: list[Any] | dict[str, Any]) -> dict[str, Any]:
    """Return the length, a number that reflects all numbers and their order, and a hash of the words."""
    leaves = [*_leaves(value)]
    numbers = [leaf for leaf in leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]
    words = json.dumps([leaf for leaf in leaves if not isinstance(leaf, int | float) or isinstance(leaf, bool)])
    mixed = sum((at + 1) * math.asinh(1e6 * number) for at, number in enumerate(numbers)) / max(len(numbers), 1)
    digest = hashlib.sha256(words.encode()).hexdigest()[:12]
    return {"length": len(value), "numbers": float(f"{mixed:.9g}"), "words": digest}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def differences(golden: Any, now: Any, at: str = "") -> list[str]:
    """Return where two documents differ, each as a path and both values."""
    if isinstance(golden, dict) and isinstance(now, dict):
        names = [*golden, *(name for name in now if name not in golden)]
        return [
            one
            for name in names
            for one in differences(golden.get(name, "<absent>"), now.get(name, "<absent>"), f"{at}/{name}")
        ]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        return [one for n, pair in enumerate(zip(golden, now, strict=True)) for one in differences(*pair, f"{at}[{n}]")]
    if isinstance(golden, str) and isinstance(now, str) and "\n" in golden + now:
        return differences(golden.splitlines(), now.splitlines(), at) or ([] if golden == now else [f"{at}: line ends"])
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (golden, now))
    if numbers and (
        math.isclose(golden, now, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12) or (math.isnan(golden) and math.isnan(now))
    ):
        return []
    return [] if golden == now and type(golden) is type(now) else [f"{at}: was {golden!r}, is {now!r}"]


def golden(name: str) -> Any:
    """Return what is recorded under `<kind>/<noun>`."""
    return json.loads((GOLDENS / f"{name}.json").read_text())


def record(name: str, document: Any) -> None:
    """Write a golden file; texts of several lines are stored as lists of lines, so that a change reads as a diff."""
    path = GOLDENS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def lines(text: str) -> list[str]:
    """Return a text as the lines that a golden file keeps."""
    return [line.rstrip() for line in plain_text(text).splitlines()]
