"""Every code block of the README files and of the documentation is run by a test, or its section says what it needs."""

from __future__ import annotations

import ast
import itertools
import json
import lzma
import pkgutil
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tomllib
import torch

import trmon_client
from tests.docs.code_blocks import ROOT, Block, blocks, lines, runnable
from tests.fixtures.command import read_arguments, run_here
from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.service import ThreadedService
from tests.fixtures.tracker_logs import TRACKER_LOGS, unpacked_mlflow_store
from tests.fixtures.trainer import MATH, corrupt, finish, send
from tests.fixtures.waiting import eventually
from trmon.cli.diagnose import EXAMPLE_FILE
from trmon.domain.identity import RunKey
from trmon_client.core import wire
from trmon_client.monitor import Monitor
from trmon_client.turns import turn_ids_of_mask

ELSEWHERE = {
    ("alerts.md", "json"): "tests/docs/test_pages.py",
    ("alerts.md", "python"): "tests/docs/test_pages.py",
    ("assistants.md", "json"): "tests/docs/test_pages.py",
    ("deploy.md", "yaml"): "tests/deploy/test_kubernetes_components.py",
    ("diagnosis.md", "python"): "tests/docs/test_pages.py",
    ("missing-alerts.md", "sh"): "tests/docs/test_pages.py",
    ("operations.md", "sh"): "tests/docs/test_operations.py",
    ("python.md", "python"): "tests/docs/test_operations.py",
    ("queries.md", "python"): "tests/docs/test_operations.py",
    ("queries.md", "sql"): "tests/docs/test_operations.py",
}
"""The test that runs the blocks of a page in a language."""
IN_PEERS = {
    "attach(trainer, ": "tests/peers/trl/test_service.py",
    "integrations.transformers": "tests/peers/transformers/test_transformers.py",
    "integrations.lightning": "tests/peers/lightning/test_lightning.py",
}
"""The tests of `make peers` that run blocks by what these hold."""
NEEDS = re.compile(
    r"\bneeds? (?:an? )?(cluster|GPUs?|Docker|systemd|PostgreSQL|S3|server|spare database|Alertmanager)\b"
)
"""How a section says that no test runs its blocks."""
URLS = re.compile(r"http://(127\.0\.0\.1|trmon\.example):8642")
RUN = {"diagnose", "show", "signals", "note", "whatif", "backtest", "import", "preflight", "rules"}
"""Commands that are run; the arguments of others are only read: they run until interrupted, or act on this machine."""
AWAY = re.compile(r"s3://|http://(mlflow|engine)")
"""In commands that read a lake in S3 or ask another server."""
VALUES = {
    "PROJECT/RUN|math/qwen3-8b-grpo|examples/pytorch-grpo": "math/grpo", "FIRST": "0", "LAST": "2", "STEP": "1"
}  # fmt: skip
B, T, V = 4, 6, 16


def is_run_elsewhere(block: Block) -> bool:
    """Return whether another test runs a block."""
    return (Path(block.page).name, block.language) in ELSEWHERE or any(text in block.text for text in IN_PEERS)


def needs(block: Block) -> bool:
    """Return whether the section of a block says what it needs."""
    return bool(NEEDS.search(" ".join(block.section.split())))


PYTHON = [block for block in blocks("python") if not is_run_elsewhere(block)]
HERE = [block for block in PYTHON if not needs(block)]
COMMANDS = {line: block for block in blocks("sh") for line in lines(block)}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with a corrupt run, whose incident is the first alert, and a healthy one."""
    service = ThreadedService(tmp_path_factory.mktemp("service"))
    with service.client() as client:
        corrupt(client, RunKey("math", "ill"))
        scalars = {"lr": 1e-3, "loss": 0.5}
        send(client, MATH, wire.Start(**ORIGIN), *(report(columns(seed=n), step=n, scalars=scalars) for n in range(3)))
        finish(client, MATH, steps=range(3))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def archive(seeded: ThreadedService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `trmon export` wrote of the service's project."""
    folder = tmp_path_factory.mktemp("archive") / "math"
    assert run_here("export", "math", folder, "--data-dir", seeded.data_dir).exit_code == 0
    return folder


@pytest.fixture
def place(tmp_path: Path, seeded: ThreadedService, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the pages name, and the service in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRMON_URL", seeded.url)
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    return tmp_path


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values()}))
def test_the_tests_that_run_other_pages_name_them(test: str) -> None:
    pages = {page for (page, _), name in ELSEWHERE.items() if name == test}
    assert [page for page in pages if page not in (ROOT / test).read_text()] == []


@pytest.mark.parametrize("page", dict.fromkeys(block.page for block in HERE))
def test_python_runs(page: str, place: Path, seeded: ThreadedService) -> None:
    names: dict[str, Any] = {}
    for block in HERE:
        if block.page == page:
            execute(block, names, url=seeded.url)
            # The next block may ask what is wrong with the run.
            eventually(lambda: all_are_judged(seeded.url))


def all_are_judged(url: str) -> bool:
    """Whether the worker has judged what ended runs sent."""
    runs = httpx.get(f"{url}/api/v1/fleet").json()["items"]
    return all(run["judged_step"] == run["step"] for run in runs if run["state"] == "finished")


def execute(block: Block, names: dict[str, Any], *, url: str) -> None:
    """Run a block in the names of those before it, and check that the client accepted all of its calls."""
    # A block may leave a loop that the page does not show.
    code = "for _ in [0]:\n" + textwrap.indent(URLS.sub(url, runnable(block.text)), " ")
    tree = ast.parse(code)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        fill_in(call)
    names |= (given := prepared(url, is_packed="cu_seqlens=" in code))
    exec(compile(ast.fix_missing_locations(tree), str(block), "exec"), names)
    for monitor in {
        id(value): value for value in (given["monitor"], *names.values()) if isinstance(value, Monitor)
    }.values():
        monitor.close()
        assert monitor.error_guard.losses.snapshot() == {}


def fill_in(call: ast.Call) -> None:
    """Give a call the arguments that a block leaves out."""
    given = {keyword.arg for keyword in call.keywords}
    if any(isinstance(keyword.value, ast.Name) and keyword.value.id == "more" for keyword in call.keywords):
        function = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        missing = {
            "init": {"project": "'blocks'", "run": "'docs'"},
            "log_batch": {"step": "step", "mask": "mask", "rollout_logprobs": "mu", "logprobs": "pi"},
        }[function]
        call.keywords = [keyword for keyword in call.keywords if keyword.arg is not None] + [
            ast.keyword(name, ast.parse(value, mode="eval").body)
            for name, value in missing.items()
            if name not in given
        ]


def prepared(url: str, *, is_packed: bool) -> dict[str, Any]:
    """Return the names that pages take for granted, as a trainer has them."""
    torch.manual_seed(0)
    logits = torch.randn(B, T, V)
    pi, tokens = logits.log_softmax(-1)[..., 0], torch.zeros(B, T, dtype=torch.long)
    mask = torch.ones(B, T, dtype=torch.bool)
    given = pi.flatten() if is_packed else pi
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    monitor = trmon_client.init(project="blocks", run="docs", url=url)
    decision = monitor.log_batch(step=0, rollout_logprobs=pi, logprobs=pi, mask=mask)
    return {
        "trmon": trmon_client, "torch": torch, "monitor": monitor, "decision": decision, "step": 1,
        "steps": 2, "update": 0, "MICRO_BATCHES": 1, "adv": torch.ones(B),
        "mu": given, "old": given, "pi": given, "logprobs": given, "mask": mask,
        "cu_seqlens": [T * i for i in range(B + 1)], "turn_ids_of_mask": turn_ids_of_mask,
        "per_sequence_loss": pi.sum(1), "per_token_loss": pi, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "model": model, "ids": tokens, "completions": ["a"] * B, "batch": {"advantages": torch.ones(B)},
        "clipped_loss": lambda logprobs, batch: (logprobs * batch["mask"]).sum(1),
        "rollout_ids": tokens[..., None, None], "train_ids": tokens[..., None, None], "metrics": {"reward": 0.5},
        "path": "/runs/a/checkpoint-1",
        "mu_shard": logits, "pi_shard": logits, "tensor_parallel_group": None,
        "old_hidden": torch.randn(B, T, 8), "hidden": torch.randn(B, T, 8), "old_head": torch.nn.Linear(8, V),
        "head": torch.nn.Linear(8, V), "model_logprobs": lambda row: row,
    }  # fmt: skip


@pytest.mark.parametrize("line", [line for line in COMMANDS if not is_run_elsewhere(COMMANDS[line])])
def test_a_command_exists(line: str, place: Path, seeded: ThreadedService) -> None:
    block = COMMANDS[line]
    if needs(block) and not line.startswith("trmon "):
        return
    words = shlex.split(with_values(line).rpartition("| ")[2], comments=True)
    while words and (words[0] == "export" or re.match(r"[A-Z_]+=", words[0])):
        words.pop(0)
    name, *rest = words or [""]
    if name == "trmon":
        (place / "recordings/math/grpo").mkdir(parents=True)
        read_arguments([word for word in rest if word not in ("&", ">")])
    elif name == "curl":
        assert answer(seeded.url, rest) in (200, 201, 204)
    elif name == "GET":
        assert f"`{name} {rest[0]}`" in (ROOT / "docs/reference/routes.md").read_text()
    elif name == "make":
        target = next(word for word in rest if "=" not in word)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif name == "pip":
        assert {word for word in rest if word != "install"} <= INSTALLED, line
    elif name == "python" and rest[0] == "-m" and rest[1].startswith("trmon"):
        assert find_spec(rest[1])
    elif name == "python" and rest[0].startswith("examples/"):
        assert (ROOT / rest[0]).is_file()
    elif name == "pytest":
        assert [path for path in rest if not (ROOT / path).exists()] == []
    else:
        assert not name or (ROOT / name).is_file(), f"{block} does not say what {name} needs"


def answer(url: str, arguments: list[str]) -> int:
    """Return the status of the request that curl would send."""
    options = dict(itertools.pairwise(arguments))
    target = next(word for word in arguments if word.startswith("$TRMON_URL")).replace("$TRMON_URL", url)
    return httpx.request(options["-X"], target, json=json.loads(options["-d"])).status_code


def with_values(line: str) -> str:
    """Return a command with values in place of the words that stand for some."""
    for names, value in VALUES.items():
        line = re.sub(rf"\b({names})\b", value, line)
    return line


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTALLED = {"trmon-client", "./client", ".", *(f"trmon[{extra}]" for extra in EXTRAS)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that commands read; what they write, they name, or is below TRMON_DATA_DIR."""
    place = tmp_path_factory.mktemp("files")
    unpacked_mlflow_store(place)
    shutil.copytree(TRACKER_LOGS / "wandb", place / "wandb")
    shutil.copytree(TRACKER_LOGS / "tensorboard", place / "tensorboard_log/math")
    (place / "my_engine.py").write_text(
        "def sample():\n    return {'token_ids': [[1, 2]], 'logprobs': [[-1.0, -1.0]]}\n"
    )
    (place / "my_trainer.py").write_text(
        "def score(token_ids, mask):\n    return [[-1.0] * len(row) for row in token_ids]\n"
    )
    log = lzma.decompress(EXAMPLE_FILE.read_bytes())
    for name in (
        "grpo.jsonl",
        "verl.log",
        "console.log",
        "a.jsonl",
        "b.jsonl",
        "outputs/c",
        "outputs/checkpoint-500",
        "FILE",
    ):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(log)
    (place / "mine.csv").write_text("step,score\n" + "".join(f"{step},0.5\n" for step in range(30)))
    (place / "mine.yml").write_text(next(block.text for block in blocks("yaml") if block.page == "docs/rules.md"))
    arrays = {"logprobs": -np.ones((B, T)), "token_ids": np.ones((B, T), dtype=int), "mask": np.ones((B, T))}
    for name in ("rollout", "trainer"):
        np.savez(place / f"{name}.npz", **arrays)
    np.savez(place / "step.npz", **arrays, rollout_logprobs=arrays["logprobs"])
    return place


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("trmon ") and line.split()[1] in RUN])
def test_a_command_runs(
    line: str, place: Path, files: Path, seeded: ThreadedService, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if AWAY.search(line):
        pytest.skip("reads a lake in S3 or asks another server")
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(str(files))
    monkeypatch.setenv("TRMON_DATA_DIR", str(place / "data"))
    line = re.sub(r"(?<= )(/archive/math|archive/)(?= )", str(archive), f"{line} ")
    words = shlex.split(URLS.sub(seeded.url, with_values(line)).partition(" > ")[0], comments=True)
    done = run_here(*(path for word in words[1:] for path in (files.glob(word) if "*" in word else [word])))
    assert done.exit_code in ((0, 1) if words[1] in ("diagnose", "preflight") else (0,)), done.output


def test_the_rules_of_the_page_are_rules_and_their_tests_pass(place: Path) -> None:
    mine, changes, tests = (block.text for block in blocks("yaml") if block.page == "docs/rules.md")
    for text in (changes, mine):
        (place / "rules.yaml").write_text(text)
        assert run_here("rules", "check", "rules.yaml").exit_code == 0
    (place / "tests.yaml").write_text(tests)
    assert run_here("rules", "test", "tests.yaml").exit_code == 0


@pytest.mark.parametrize("block", [block for block in PYTHON if block not in HERE], ids=str)
def test_what_a_block_for_another_machine_imports_is_there(block: Block) -> None:
    assert needs(block)
    found = re.findall(r"from (trmon_client\.integrations\.\w+) import (\w+)", block.text)
    assert found
    for module, name in found:
        assert pkgutil.resolve_name(f"{module}:{name}")


@pytest.mark.parametrize(("text", "test"), IN_PEERS.items())
def test_the_tests_of_peers_run_such_blocks(text: str, test: str) -> None:
    assert [block for block in blocks("python") if text in block.text]
    assert f'holding("{text}")' in (ROOT / test).read_text()
