"""The text: functions of Python's standard library, their tokens, and the beginnings that a policy completes."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trmon_research.language.plans import DATA

TOKENIZER, PROMPTS = DATA / "tokenizer.json", DATA / "prompts.json"

SPECIAL = PADDING, END = ("<pad>", "<end>")
PADDING_ID, END_ID = 0, 1
VOCABULARY = 2000
LONGEST_PROMPT = 48
HELD_OUT = 26
"""Of 256 functions outside of tests so many are held out: no model is trained on them, and prompts begin them."""


@dataclass(frozen=True, slots=True)
class Text:
    """Functions as text: those that models are trained on, in a random order, and those held out for prompts."""

    trained: list[str]
    held_out: list[str]

    @property
    def digest(self) -> str:
        """What tells the sources of one version of Python from another's."""
        return hashlib.sha256("\0".join([*self.trained, *self.held_out]).encode()).hexdigest()[:16]


@cache
def text() -> Text:
    """Return the functions and methods of the standard library of this Python, each once, without indentation."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, bool] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "lib2to3", "__pycache__"} & {*parts}:
            found |= dict.fromkeys(functions_of(path), not {"test", "tests", "idle_test"} & {*parts})
    held = {one for one, may_be_held in found.items() if may_be_held and _hash(one) < HELD_OUT}
    trained = [one for one in found if one not in held]
    random.Random(0).shuffle(trained)
    return Text(trained, sorted(held, key=lambda one: hashlib.sha256(one.encode()).digest()))


def functions_of(path: Path) -> Iterator[str]:
    """Yield the functions of a file that parse alone."""
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return  # some files of the tests are wrong on purpose
    lines = source.split("\n")  # what Python counts as lines, unlike splitlines
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            alone = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])).strip() + "\n"
            try:
                ast.parse(alone)
            except SyntaxError:
                continue  # a string of several lines that begins further left
            yield alone


def _hash(function: str) -> int:
    return hashlib.sha256(function.encode()).digest()[0]


def train_tokenizer() -> Tokenizer:
    """Return byte-pair encodings of the trained functions."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text().trained, trainer)
    return tokenizer


@cache
def tokenizer() -> Tokenizer:
    """Return the stored encodings."""
    return Tokenizer.from_file(str(TOKENIZER))


def tokens(functions: list[str]) -> npt.NDArray[np.int64]:
    """Return the tokens of functions in one row, each followed by the end token, [tokens]."""
    encoded = tokenizer().encode_batch_fast(functions, add_special_tokens=False)
    return np.concatenate([np.array([*one.ids, END_ID]) for one in encoded])


@cache
def prompts() -> list[str]:
    """Return the stored prompts: another version of Python has other functions."""
    return list(json.loads(PROMPTS.read_text()))


def find_prompts() -> list[str]:
    """Return the beginnings of held-out functions: the line of `def`, and the first line of what documents it."""
    found = dict.fromkeys(prompt for function in text().held_out if (prompt := beginning(function)))
    encoded = tokenizer().encode_batch_fast(list(found))
    return [prompt for prompt, one in zip(found, encoded, strict=True) if len(one.ids) <= LONGEST_PROMPT]


def beginning(function: str) -> str | None:
    """Return the beginning of a function that takes two to four arguments in one line; None of others."""
    node = ast.parse(function).body[0]
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    n_given = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    head = function.partition("\n")[0]
    if not 2 <= n_given <= 4 or given.vararg or given.kwarg or not head.endswith(":"):
        return None
    documented = (ast.get_docstring(node) or "").partition("\n")[0].strip()
    is_plain = documented and '"' not in documented and "\\" not in documented
    # Without a newline: its token is one with the indentation that follows.
    return f'{head}\n    """{documented}"""' if is_plain else head
