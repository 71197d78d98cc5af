"""The endpoint: tokens are scored through an HTTP server that speaks OpenAI's `/v1/completions`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result

from tests.fixtures.tiny_transformer import TinyEngine, prompts, response_mask, tiny_engine
from trmon.cli import app
from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.causes import PreflightCause, preflight
from trmon.domain.preflight.token_pairs import EngineScores
from trmon.terminal.completions_endpoint import CompletionsEndpoint, ScoredTokens

SENTINEL = -9999.0
"""What vLLM returns for a log-prob of -inf, which JSON cannot carry."""


@dataclass
class CompletionsServer:
    """Speaks the extensions of vLLM and SGLang too, over a tiny transformer.

    It has the engine that answers, which ids it names, and the token it puts before each prompt.
    """

    engine: TinyEngine
    names_ids: str = "token_ids"
    bos: int | None = None
    status: int = 200
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = [*([] if self.bos is None else [self.bos]), *request["prompt"]]
        tokens = list(prompt)
        generator = torch.Generator().manual_seed(len(prompt) + sum(prompt))
        for _ in range(request["max_tokens"]):
            # The last position is a placeholder: only what stands before it is read.
            p = self.engine.all_logprobs(torch.tensor([[*tokens, 0]]))[0, -1].exp()
            tokens.append(int(torch.multinomial(p, 1, generator=generator)))
        scored: list[float | None] = [None, *self.engine.score(torch.tensor([tokens]))[0, 1:].tolist()]
        shown = slice(0 if request.get("echo") else len(prompt), None)
        named = request.get("return_tokens_as_token_ids") and self.names_ids == "tokens"
        choice: dict[str, Any] = {
            "index": 0,
            "text": "".join(map(_text, tokens[shown])),
            "logprobs": {
                "tokens": [f"token_id:{token}" if named else _text(token) for token in tokens[shown]],
                "token_logprobs": [_finite(value) for value in scored[shown]],
            },
        }
        if request.get("return_token_ids") and self.names_ids == "token_ids":
            choice |= {"prompt_token_ids": prompt, "token_ids": tokens[len(prompt) :]}
        return {"object": "text_completion", "choices": [choice]}


def _text(token: int) -> str:
    return chr(ord("0") + token)


def _finite(value: float | None) -> float | None:
    return SENTINEL if value == float("-inf") else value


@contextmanager
def completions_server(engine: TinyEngine, **options: Any) -> Iterator[CompletionsServer]:
    served = CompletionsServer(engine, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"object": "list", "data": [{"id": "tiny"}]} if self.path == "/v1/models" else {}, 200)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.requests.append(request)
            served.keys.append(self.headers["Authorization"])
            if self.path != "/v1/completions" or served.status != 200:
                self._reply({"error": {"message": "no logprobs here"}}, served.status if served.status != 200 else 404)
            else:
                self._reply(served.answer(request), 200)

        def _reply(self, answer: dict[str, Any], status: int) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


N = 6


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    """Return sequences that leave the model room for a beginning, a token to generate and a placeholder."""
    return tiny_engine().sample(prompts(N))[:, :-3]


def asked(tokens: Tensor) -> ScoredTokens:
    found = ScoredTokens.of(trainer(tokens))
    assert found is not None
    return found


def trainer(tokens: Tensor) -> EngineScores:
    return EngineScores.of(
        "trainer", logprobs=tiny_engine().score(tokens), mask=response_mask(tokens), token_ids=tokens
    )


@pytest.mark.parametrize("names_ids", ["token_ids", "tokens", "no"])
def test_the_endpoint_scores_the_tokens_that_it_is_given(tokens: Tensor, names_ids: str) -> None:
    with completions_server(tiny_engine(), names_ids=names_ids) as server:
        found = CompletionsEndpoint(url=server.url).score(asked(tokens))
    result = preflight(found, trainer(tokens))
    assert result.passed, result.causes
    assert result.max_abs_d < 1e-4
    assert result.tokens == int(response_mask(tokens).sum())
    assert result.alignment.n_retokenised == (None if names_ids == "no" else 0)
    assert {request["model"] for request in server.requests} == {"tiny"}


@pytest.mark.parametrize("names_ids", ["token_ids", "tokens"])
def test_a_token_that_the_endpoint_puts_first_is_retokenisation(tokens: Tensor, names_ids: str) -> None:
    with completions_server(tiny_engine(), bos=1, names_ids=names_ids) as server:
        found = CompletionsEndpoint(url=server.url).score(asked(tokens))
    result = preflight(found, trainer(tokens))
    assert [cause.cause for cause in result.causes] == [PreflightCause.RETOKENISED]
    assert result.alignment.n_retokenised == N


def test_the_sentinel_of_an_endpoint_is_a_token_without_probability(tokens: Tensor) -> None:
    with completions_server(replace(tiny_engine(), top_p=0.5)) as server:
        found = CompletionsEndpoint(url=server.url).score(asked(tokens))
    result = preflight(found, trainer(tokens))
    assert [cause.cause for cause in result.causes] == [PreflightCause.SUPPORT]
    assert result.counts.rollout_no_probability > 0


def test_a_refusal_is_shown(tokens: Tensor) -> None:
    with completions_server(tiny_engine(), status=400) as server:
        with pytest.raises(InvalidInput, match=r"answered 400: .*no logprobs here"):
            CompletionsEndpoint(url=server.url).score(asked(tokens))
        url = server.url
    with pytest.raises(InvalidInput, match="does not answer") as refused:
        CompletionsEndpoint(url=url.replace("://", "://me:hunter2@")).score(asked(tokens))
    assert "hunter2" not in str(refused.value)


def test_the_command_asks_an_endpoint(tokens: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trainer.npz"
    np.savez(file, logprobs=tiny_engine().score(tokens), mask=response_mask(tokens), token_ids=tokens)
    monkeypatch.setenv("OPENAI_API_KEY", "key-1")
    with completions_server(tiny_engine()) as server:
        done = _run(server.url, file, "--json", "--model", "tiny-2")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["token_ids_compared"] is True
    assert set(server.keys) == {"Bearer key-1"}
    assert server.requests[0]["model"] == "tiny-2"


def test_an_endpoint_needs_tokens_to_score() -> None:
    missing = _run("http://127.0.0.1:1/v1", "json:loads")
    assert (missing.exit_code, "needs token_ids to score" in missing.stderr) == (2, True)


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["preflight", *map(str, arguments)])
