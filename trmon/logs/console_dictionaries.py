"""Dictionaries on a console: which are rows of metrics, and which print a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.logs.console_lines import LineShape, begins_step_pairs
from trmon.logs.log_format import LogItem, bare_number, is_number, logged

MAX_LINES = 2000
MAX_DEPTH = 2
"""Of a row: its object, and objects within; a configuration has more levels."""
MAX_OPTIONS = 1
"""Of a row: names that are those of options."""
_MARK = {"": re.compile(r"['\"{}]"), "'": re.compile(r"\\.|'"), '"': re.compile(r'\\.|"')}
_ITEM = re.compile(
    r"""(?P<quote>['"])(?P<name>[^'"\n]+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<object>\{)|(?P<list>\[)|(?P<mark>['"])(?P<text>[^'"\n]*)(?P=mark)"""
    r"""|(?P<bare>[A-Za-z_][\w.]*\([^()]*\)|[^,{}\[\]'"\s][^,{}\[\]'"\n]*))|(?P<open>\{)|(?P<close>\})"""
)
_CONFIGURATION = re.compile(
    r"(?:config|configuration|arguments|args|kwargs|options|parameters|params|settings|tokens)\W*$", re.IGNORECASE
)
_OPTION = re.compile(
    r"(?:_target_|seed|temperature|top_[kp]|\w*batch_size|\w+_path|\w+_dir|num_(?:train_)?epochs|num_workers|num_generations"
    r"|n_gpus\w*|nnodes|weight_decay|warmup_\w+|lora_\w+|\w*dtype|\w*_token(?:_id)?|vocab_size|hidden_size"
    r"|gradient_(?:accumulation_steps|checkpointing)|(?:use|enable|do)_\w+)$"
)
_STEP_BEFORE = re.compile(
    r"\b(step|rollout|perf|iteration|iter|update|epoch)[\s=:#]*(\d+)(?:/\d+)?\b\W*$", re.IGNORECASE
)
_STEP_NAMES = {"rollout": "rollout/step", "perf": "rollout/step", "iter": "iteration"}


class Dictionaries(LineShape):
    """A dictionary is a row if it reads as one; its step is what it states, else the words before it.

    Words before it are those of its line, or a line before it that ends with a colon: `Step 3:`.

    A row has as many numbers as other values, at most one level of objects within, no word such as `config` or
    `arguments` before it, and at most one name of an option such as `seed` or `batch_size`. So a configuration is no
    row, on one line or on hundreds. A value of None was not logged. A line without indentation continues one that a
    terminal wrapped, unless it has a dictionary or a row itself, which leaves out a dictionary that does not end.
    """

    def __init__(self) -> None:
        self._text = ""
        self._n_lines = 0
        self._begin = 0
        self._depth = 0
        self._quote = ""
        self._words = ""
        self._former = ""

    @property
    def begin(self) -> int | None:
        return self._begin if self._depth else None

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the rows of the dictionaries that end in this line."""
        if self._depth:
            if self._is_interrupted_by(line):
                yield from self.finish(is_end=False)
            else:
                self._text += line if _is_wrapped(self._text, line) else f"\n{line}"
                self._n_lines += 1
        position = 0
        while True:
            if not self._depth:
                begin = _dictionary_begin(line, position)
                if begin < 0:
                    self._former = line if line.strip() else self._former
                    return
                before = line[position:begin]
                self._words = before if before.strip() else self._former if self._former.rstrip()[-1:] == ":" else ""
                self._former = ""
                position, self._begin = begin, number
                self._text, self._n_lines, self._quote = line[begin:], 1, ""
            end = self._scan(line, position)
            if end < 0:
                if self._n_lines > MAX_LINES:
                    yield from self.finish(is_end=False)
                return
            self._text = self._text[: len(self._text) - (len(line) - end)]
            values, n_lists, depth = _values(self._text)
            if _is_row(values, n_lists, depth, words=self._words):
                stated = _STEP_BEFORE.search(self._words)
                name = stated[1].lower() if stated else ""
                step = {_STEP_NAMES.get(name, name): stated[2]} if stated else {}
                yield LogRow(step | values, self._begin)
            self._text = ""
            position = end

    def _is_interrupted_by(self, line: str) -> bool:
        """Whether a line begins a separate row, or the open brace began no dictionary."""
        begin = _dictionary_begin(line, 0)
        if begins_step_pairs(line) or (begin >= 0 and _is_whole(line[begin:].rstrip())):
            return True
        return self._text.strip() == "{" and line.strip()[:1] not in ("'", '"', "}", "")

    def _scan(self, line: str, position: int) -> int:
        """Return where the open dictionary ends in a line, -1 if it continues; braces within texts do not count."""
        while found := _MARK[self._quote].search(line, position):
            position, mark = found.end(), found[0]
            if mark in ("'", '"'):
                self._quote = "" if self._quote else mark
            elif mark in ("{", "}") and not self._quote:
                self._depth += 1 if mark == "{" else -1
                if self._depth == 0:
                    return position
        return -1

    def finish(self, *, is_end: bool = True) -> Iterator[LogItem]:
        """Yield a defect for a dictionary of metrics that the log ends within, of which nothing is read."""
        text, self._text, self._depth = self._text, "", 0
        if is_end and text and _is_row(*_values(text), words=self._words):
            yield LogDefect(self._begin, "begins a dictionary that does not end", is_end=True)


def _dictionary_begin(text: str, position: int) -> int:
    """Return where a brace opens a dictionary, -1 for none: a quoted key follows it, or the line ends."""
    while (position := text.find("{", position)) >= 0:
        rest = text[position + 1 :].lstrip()
        if not rest or rest[0] in "'\"":
            return position
        position += 1
    return -1


def _is_wrapped(text: str, line: str) -> bool:
    """Whether a line is the rest of one that a terminal wrapped."""
    return bool(line.strip()) and not line[0].isspace() and text[-1:] not in (",", "{", "[") and line[0] not in "}]'\""


def _is_whole(text: str) -> bool:
    """Whether a text that begins with a brace ends with the one that closes it."""
    return text.endswith("}") and text.count("{") == text.count("}")


def _values(text: str) -> tuple[dict[str, object], int, int]:
    """Return the values of a dictionary, their names joined with a slash, how many lists it has, and its depth."""
    row: dict[str, object] = {}
    names: list[str] = []
    depth = n_lists = 0
    for item in _ITEM.finditer(text):
        if item["close"]:
            del names[-1:]
        elif item["open"] or item["object"]:
            names.append(item["name"] or "")
            depth = max(depth, len(names))
        elif item["list"]:
            n_lists += 1
        else:
            name = "/".join(filter(None, (*names, item["name"])))
            row[name] = logged(bare_number(item["text"] if item["bare"] is None else item["bare"]))
    return row, n_lists, depth


def _is_row(values: Mapping[str, object], n_lists: int, depth: int, *, words: str) -> bool:
    """Whether a dictionary is a row of metrics; see Dictionaries."""
    n_numbers = sum(isinstance(value, str) and is_number(value) for value in values.values())
    n_options = sum(_OPTION.match(name.rpartition("/")[2]) is not None for name in values)
    is_mostly_numbers = n_numbers > 0 and 2 * n_numbers >= len(values) + n_lists
    is_simple = depth <= MAX_DEPTH and n_options <= MAX_OPTIONS
    return is_mostly_numbers and is_simple and not _CONFIGURATION.search(words)
