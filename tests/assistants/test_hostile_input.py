"""What an assistant may be made to ask: any argument is answered or refused in words, reads only, and stops nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import httpx
import pytest

from tests.assistants.test_read_only import QUESTIONS
from tests.fixtures.assistant import COMMAND, Assistant, over_stdio
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from trmon.assistants.server import MAX_ANSWER_BYTES

HOSTILE: tuple[Any, ...] = (
    *("", "/", "..", "math/..", "../../admin/tokens", "math%2fgrpo", "math/grpo?x=1", "math/grpo#x"),
    *("math/grpo\r\nHost: evil", "http://169.254.169.254/latest", "//evil.example/x", "math/\0"),
    *("\u202emath/grpo", "\x1b[2J", "${jndi:ldap://x}", "<script>", "x" * 100_000, "\u0660" * 400),
    *(None, True, -1, 0, 1 << 70, -(1 << 63), 1e308, [], {}, [[]], ["math/grpo"] * 500, {"a": {"b": {}}}),
)
N_TRIED = 5
"""Values for each argument; the next argument, or tool, gets others."""


@pytest.fixture(scope="module")
def assistant(shared_service: ThreadedService, shared: httpx.Client) -> Iterator[Assistant]:
    """An assistant of a service with two runs."""
    train(shared, steps=range(6))
    with over_stdio(shared_service.url) as assistant:
        yield assistant


def said(assistant: Assistant, tool: str, arguments: dict[str, Any]) -> str:
    """Return what a model reads of the answer or the refusal; what the SDK itself refuses is one too."""
    try:
        result = assistant._call(tool, arguments)
    except Exception as refusal:
        return str(refusal)
    return "".join(content.text for content in result.content)  # type: ignore[union-attr]


@pytest.mark.parametrize("tool", QUESTIONS)
def test_any_argument_is_answered_or_refused_in_words(assistant: Assistant, tool: str) -> None:
    usual, first = QUESTIONS[tool], list(QUESTIONS).index(tool)
    names = {name for one in assistant.tools() if one.name == tool for name in one.input_schema["properties"]}
    for start, name in enumerate(sorted(names), 2 * first):
        for value in islice(cycle(HOSTILE), start * N_TRIED, (start + 1) * N_TRIED):
            answer = said(assistant, tool, {**usual, name: value})
            assert "Traceback" not in answer, (name, value)
            assert "Internal" not in answer, (name, value, answer)
            assert len(answer.encode()) <= 2 * MAX_ANSWER_BYTES, (name, value)
    assert said(assistant, tool, {**usual, "no_such": 1})
    assert assistant.ask("list_runs")["runs"], "the server still answers"


def test_no_argument_reaches_another_path_of_the_service(assistant: Assistant) -> None:
    for run in (
        "../../api/v1/tokens",
        "math/grpo/../../tokens",
        "..%2f..%2ftokens",
        "math/grpo?include=notes",
        "math/../tokens",
    ):
        for tool, usual in QUESTIONS.items():
            if "run" in usual:
                answer = said(assistant, tool, {**usual, "run": run})
                assert "is not a valid name" in answer or "PROJECT/RUN" in answer or "no run" in answer, (
                    tool,
                    run,
                    answer,
                )


GARBAGE = (
    *(b"garbage", b"{", b"[]", b"null", b"\xff\xfe\0", b"[" * 100_000),
    b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[]}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"diagnose_run","arguments":{"run":"\\ud83d"}}}',
    b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"' + b"x" * 1_000_000 + b'"}}',
)


def test_lines_that_are_no_messages_do_not_end_the_server() -> None:
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}).encode(),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        *GARBAGE,
        b'{"jsonrpc":"2.0","id":99,"method":"tools/list"}',
    ]
    command = [sys.executable, "-c", COMMAND, "mcp", "--url", "http://127.0.0.1:9"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answered = next(line for line in server.stdout if b'"id":99' in line)
        server.stdin.close()
        assert b"diagnose_run" in answered
        assert server.wait(60) == 0
