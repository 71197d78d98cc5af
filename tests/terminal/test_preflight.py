"""What `trmon preflight` reads: files of scores and arrays, hostile ones too, and tokens that an endpoint scores."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.fixtures.command import run_here
from tests.fixtures.fuzzing import edited
from tests.fixtures.http_server import HttpRequest, http_server
from tests.fixtures.tiny_transformer import TinyEngine, prompts, response_mask, tiny_engine
from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.causes import PreflightCause, preflight
from trmon.domain.preflight.token_pairs import EngineScores
from trmon.terminal.array_files import FREE_BYTES, read_arrays
from trmon.terminal.completions_endpoint import CompletionsEndpoint, ScoredTokens
from trmon.terminal.preflight_scores import ScoreFile


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_line_is_one_sequence_and_null_is_missing(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        {"logprobs": [None, -1.0], "token_ids": [3, 4], "mask": [0, 1]},
        {"logprobs": [-2.0], "token_ids": [5], "mask": [1]},
    )
    found = ScoreFile(path).rollout()
    assert np.isnan(found.logprobs[0][0])
    assert [row.tolist() for row in found.token_ids or ()] == [[3, 4], [5]]
    assert [row.tolist() for row in found.mask or ()] == [[False, True], [True]]


def test_infinities_are_read_as_the_api_writes_them(tmp_path: Path) -> None:
    [row] = ScoreFile(write_lines(tmp_path / "a.jsonl", {"logprobs": ["-inf", -1.5]})).rollout().logprobs
    assert row.tolist() == [-np.inf, -1.5]


def test_one_file_holds_both_engines_under_the_names_of_log_batch(tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    np.savez(path, rollout_logprobs=[[-1.0]], old_logprobs=[[-2.0]], logprobs=[[-3.0]], mask=[[1]])
    file = ScoreFile(path)
    assert file.has_both_engines
    assert (file.rollout().logprobs[0][0], file.trainer().logprobs[0][0]) == (-1.0, -2.0)
    assert file.trainer().mask is not None


def test_padding_is_cut_by_the_attention_mask(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, logprobs=[[0.0, -1, -2, 0]], token_ids=[[0, 7, 8, 0]], attention_mask=[[0, 1, 1, 0]])
    file = ScoreFile(path)
    tokens = file.tokens()
    assert tokens is not None
    assert tokens.token_ids[0].tolist() == [7, 8]
    assert file.trainer().logprobs[0].tolist() == [-1.0, -2.0]


def test_a_file_without_token_ids_has_nothing_to_score(tmp_path: Path) -> None:
    assert ScoreFile(write_lines(tmp_path / "a.jsonl", {"logprobs": [-1.0]})).tokens() is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one JSON object per sequence"),
        ("[1]\n", "one JSON object per sequence"),
        ("{\n", "cannot be read"),
        ('{"logprobs": [1]}\n{"mask": [1]}\n', "sequence 2 has other fields"),
        ('{"mask": [1]}\n', "has no rollout_logprobs or logprobs; it has mask"),
        ('{"logprobs": [-1], "attention_mask": [1, 1]}\n', "attention_mask does not fit"),
    ],
)
def test_lines_that_are_no_scores_are_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        ScoreFile(path).rollout()


MEMORY_BYTES = 1 << 30
"""What the process that reads the bombs may map: less than any of them would take."""


def npy(shape: str, *, descr: str = "'<f8'", data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """Return a .npy file whose header claims a shape."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + data


def with_member(data: bytes, **options: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", **options) as archive:  # type: ignore[arg-type]
            archive.writestr("logprobs.npy", data)

    return write


def inflating(path: Path) -> None:
    """An entry of a few MiB that inflates to a GiB of zeros, as its header says truly."""
    n_bytes = 1 << 30
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("logprobs.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy(f"({n_bytes // 8},)"))
        for _ in range(n_bytes >> 24):
            file.write(bytes(1 << 24))


def overlapping(path: Path) -> None:
    """A thousand entries that share the data of one."""
    with_member(npy("(131072,)", data=bytes(1 << 20)), compression=zipfile.ZIP_DEFLATED)(path)
    with zipfile.ZipFile(path, "a") as archive:
        [member] = archive.infolist()
        for i in range(1000):
            again = zipfile.ZipInfo(f"a{i}.npy")
            for name in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(again, name, getattr(member, name))
            archive.filelist.append(again)
        archive._didModify = True


def falsely_sized(path: Path) -> None:
    """An entry whose directory says a terabyte."""
    with_member(npy("(1,)", data=bytes(8)))(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.infolist()[0].file_size = 1 << 40
        archive._didModify = True


BOMBS = [
    pytest.param(with_member(npy("(1099511627776,)")), "claims the shape", id="terabytes"),
    pytest.param(with_member(npy("(1099511627776,)", version=b"\x02\x00")), "claims the shape", id="version 2"),
    pytest.param(with_member(npy("(4294967296, 4294967296)")), "claims the shape", id="a product above 64 bits"),
    pytest.param(with_member(npy("(-1, -8)", data=bytes(64))), "claims the shape", id="negative"),
    pytest.param(with_member(npy("(1000000000000, 0)")), "claims the shape", id="rows without elements"),
    pytest.param(with_member(npy("(1000000000000,)", descr="'|V0'")), "claims the shape", id="elements without bytes"),
    pytest.param(with_member(npy("(1,)", descr="'|V2000000000'")), "claims the shape", id="a large element"),
    pytest.param(with_member(npy("(1,)", descr="'|O'", data=b"cos\nsystem\n.")), "Object arrays", id="a pickle"),
    pytest.param(with_member(npy("(1,)", version=b"\x03\x00")), "version", id="version 3"),
    pytest.param(with_member(npy("(" * 9000)), "cannot be read", id="deep nesting"),
    pytest.param(with_member(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "array header", id="a header without end"),
    pytest.param(with_member(npy("(1,)", data=bytes(8)), compression=zipfile.ZIP_LZMA), "does not write", id="LZMA"),
    pytest.param(inflating, "expand to 1,073,741", id="inflation"),
    pytest.param(overlapping, "expand to", id="overlapping entries"),
    pytest.param(falsely_sized, "expand to 1,099,511,627,776", id="a false size"),
]


READ_EACH = """
import resource, sys
from pathlib import Path
from trmon.domain.errors import InvalidInput
from trmon.terminal.array_files import read_arrays
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
for path in map(Path, sys.argv[1:]):
    try:
        read_arrays(path)
        print(path, "was read")
    except InvalidInput as refusal:
        print(refusal)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what one process with little memory says of each bomb."""
    folder = tmp_path_factory.mktemp("bombs")
    paths = [folder / f"{place}.npz" for place in range(len(BOMBS))]
    for path, bomb in zip(paths, BOMBS, strict=True):
        bomb.values[0](path)  # type: ignore[operator]
    environment = {"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    script = READ_EACH.format(bytes=MEMORY_BYTES)
    command = [sys.executable, "-c", script, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("place", "reason"), [pytest.param(i, bomb.values[1], id=bomb.id) for i, bomb in enumerate(BOMBS)]
)
def test_a_bomb_is_refused_by_name_within_bounded_memory(refusals: list[str], place: int, reason: str) -> None:
    assert f"{place}.npz: cannot be read: " in refusals[place]
    assert reason in refusals[place]
    assert len(refusals) == len(BOMBS)


def test_arrays_larger_than_the_free_size_are_read_if_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, logits=np.zeros(FREE_BYTES // 8 + 1), mask=np.ones((2, 0)))
    found = read_arrays(path)
    assert (found["logits"].nbytes > FREE_BYTES, found["mask"].shape) == (True, (2, 0))
    assert read_arrays(path, names=["mask"]).keys() == {"mask"}


def valid_file() -> bytes:
    buffer = io.BytesIO()
    arrays = {"logprobs": np.zeros((2, 3)), "mask": np.asfortranarray(np.ones((2, 3), bool)), "group": np.array(["a"])}
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Reading `.npy`", "ignore:Duplicate name")
@given(
    st.one_of(
        edited(st.just(valid_file())), edited(st.just(npy("(1,)", data=bytes(8)))).map(lambda data: repacked(data))
    )
)
def test_any_file_is_read_or_refused(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        path.write_bytes(data)
        try:
            read_arrays(path)
        except InvalidInput as refusal:
            assert "a.npz: cannot be read: " in str(refusal)  # noqa: PT017 -- a file may also be read


def repacked(member: bytes) -> bytes:
    """Return a .npz file with one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("logprobs.npy", member)
    return buffer.getvalue()


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

    def answer(asked: HttpRequest) -> tuple[int, bytes]:
        if asked.method == "GET":
            found: Any = {"object": "list", "data": [{"id": "tiny"}]} if asked.path == "/v1/models" else {}
            return 200, json.dumps(found).encode()
        served.requests.append(json.loads(asked.body))
        served.keys.append(asked.headers["Authorization"])
        if served.status != 200 or asked.path != "/v1/completions":
            refusal = {"error": {"message": "no logprobs here"}}
            return served.status if served.status != 200 else 404, json.dumps(refusal).encode()
        return 200, json.dumps(served.answer(served.requests[-1])).encode()

    with http_server(answer) as url:
        served.url = f"{url}/v1"
        yield served


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
        done = run_here("preflight", server.url, file, "--json", "--model", "tiny-2")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["token_ids_compared"] is True
    assert set(server.keys) == {"Bearer key-1"}
    assert server.requests[0]["model"] == "tiny-2"


def test_an_endpoint_needs_tokens_to_score() -> None:
    missing = run_here("preflight", "http://127.0.0.1:1/v1", "json:loads")
    assert (missing.exit_code, "needs token_ids to score" in missing.stderr) == (2, True)
