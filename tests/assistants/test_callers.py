"""Whose token counts, and what happens without one, without a service or without the SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.fixtures.assistant import COMMAND, connected, over_stdio
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from trmon.assistants.server import build_server
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey
from trmon_client.api import Service


@pytest.fixture(scope="module")
def tokens(shared: httpx.Client) -> dict[str, str]:
    """The secrets of tokens by what they may do, of a service with a run in each of two projects."""
    train(shared)
    train(shared, RunKey("code", "ppo"))
    shared.headers["Authorization"] = f"Bearer {make_token(shared, 'root', Scope.ADMIN)}"
    return {
        "math": make_token(shared, "math-reader", Scope.READ, project="math"),
        "ingest": make_token(shared, "trainer", Scope.INGEST),
    }


def test_the_token_of_the_environment_decides_what_is_shown(
    shared_service: ThreadedService, tokens: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(tokens["math"])
    with over_stdio(shared_service.url, token_file=str(file)) as assistant:
        assert {run["run"] for run in assistant.ask("list_runs")["runs"]} == {"math/grpo"}
        assert "no run 'code/ppo'" in assistant.refusal("diagnose_run", run="code/ppo")
    for token, said in (("unknown", "answered 401"), (tokens["ingest"], "lacks the scope 'read'")):
        with Service(shared_service.url, token) as service, connected(build_server(service)) as refused:
            assert said in refused.refusal("list_runs")


def test_a_caller_is_told_how_to_start_a_service_and_to_set_a_token(serve: Serve) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with over_stdio(url) as assistant:
        refusal = assistant.refusal("list_runs")
        assert f"no service answers at {url}" in refusal
        assert "`trmon serve`" in refusal
        service = serve(port=int(url.rpartition(":")[2]))
        assert service.url == url
        assert assistant.ask("list_runs")["runs"] == []
        with service.client() as client:
            make_token(client, "root", Scope.ADMIN)
        assert "answered 401" in (refusal := assistant.refusal("list_runs"))
        assert "set TRMON_TOKEN" in refusal


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['mcp'] = None; {COMMAND}"
    done = subprocess.run([sys.executable, "-c", code, "mcp"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert done.stderr == "trmon: trmon mcp needs mcp.server; pip install 'trmon[mcp]' brings it\n"
