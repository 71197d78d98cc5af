"""Console output of trainers: the rows among all lines, with who printed them and the newest progress bar before them.

Rows come in the order in which they begin in the file. A row states a step only if its own line or the words before it
do. A progress bar is no step: consoles buffer lines and bars separately, so a row has the count of the newest bar of
its writer beside it. Bars with a description count only if it begins like `Training` or `Epoch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs.console_lines import BulletList, FieldLines, LineShape, MetricGrid, StepPairs, begins_step_pairs
from trmon.logs.log_format import LogFormat, LogItem, bare_number, is_number, logged
from trmon.logs.markdown import MarkdownTables, has_table, tables_found

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


_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_RAY_PREFIX = re.compile(r"\s*\(([^()\s][^()]*? pid=\d+(?:, ip=[^()\s]+)?)\) ?")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
"""What Ray adds to a line that several processes printed."""
_BAR = re.compile(r"(?:^|\])(?P<description>[^\]|{}]*?)\d{1,3}%\|[^|]*\| *(?P<count>\d+)/\d+ \[")
_TRAINING = re.compile(
    r"(?:global |current )?(?:train(?!\w* (?:data|set|split))|epoch|episode|steps?\b|iter|update|progress|grpo|ppo|$)",
    re.IGNORECASE,
)
PATIENCE_LINES = 200
"""After so many lines of others a process does not continue a row any more; the rows that wait for it come out."""


class _Process:
    """The shapes of lines that one process prints; processes may print between the lines of each other."""

    def __init__(self, writer: str) -> None:
        self.pairs = StepPairs()
        self.tables = MarkdownTables()
        self.newest_line = 0
        self._writer = writer
        self._bar: int | None = None
        self._shapes: tuple[LineShape, ...] = (
            self.pairs,
            Dictionaries(),
            FieldLines(),
            BulletList(),
            MetricGrid(),
            self.tables,
        )

    @property
    def begin(self) -> int | None:
        """The line at which its oldest open row begins."""
        return min((shape.begin for shape in self._shapes if shape.begin is not None), default=None)

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        self.newest_line = number
        before, brace, after = line.partition("{") if "%|" in line else (line, "", "")
        self._note_bar(before)
        for shape in self._shapes:
            yield from map(self._item, shape.add_line(line, number))
        if brace:
            self._note_bar(after.rpartition("}")[2])

    def finish(self) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from map(self._item, shape.finish())

    def _item(self, item: LogItem) -> LogItem:
        return replace(item, writer=self._writer, bar=self._bar) if isinstance(item, LogRow) else item

    def _note_bar(self, text: str) -> None:
        for bar in _BAR.finditer(text) if "%|" in text else ():
            if _TRAINING.match(bar["description"].strip(" :\t")):
                self._bar = int(bar["count"])


class Console:
    """The processes that print on a console, and the rows that wait for older ones to end."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_lines = 0
        self._processes: dict[str, _Process] = {}
        self._former = ""
        self._waiting: list[LogItem] = []

    @property
    def n_refused_tables(self) -> int:
        """How many tables in the lines are none of metrics."""
        return sum(process.tables.n_refused for process in self._processes.values())

    def read(self, lines: Iterable[str]) -> Iterator[LogItem]:
        """Yield the rows and defects of the lines, in the order in which they begin."""
        for self.n_lines, line in enumerate(lines, start=1):
            for part in _ESCAPE.sub("", line).replace("\r", "\n").splitlines():
                yield from self._counted(self._add_line(part, self.n_lines))
        self._waiting += chain.from_iterable(process.finish() for process in self._processes.values())
        yield from self._counted(sorted(self._waiting, key=_line_of))

    def _counted(self, items: Iterable[LogItem]) -> Iterator[LogItem]:
        for item in items:
            self.n_rows += isinstance(item, LogRow)
            yield item

    def _add_line(self, line: str, number: int) -> Iterator[LogItem]:
        prefix = _RAY_PREFIX.match(line)
        text = _REPEATED.sub("", line[prefix.end() :]) if prefix else line
        if prefix is not None or not self._process(self._former).pairs.is_continued_by(text):
            self._former = prefix[1] if prefix else ""
        self._waiting += self._process(self._former).add_line(text, number)
        if self._waiting:
            for process in self._processes.values():
                if process.begin is not None and process.newest_line < number - PATIENCE_LINES:
                    self._waiting += process.finish()
            begins = [process.begin for process in self._processes.values() if process.begin is not None]
            oldest = min(begins, default=number + 1)
            self._waiting.sort(key=_line_of)
            while self._waiting and self._waiting[0].line <= oldest:
                yield self._waiting.pop(0)

    def _process(self, writer: str) -> _Process:
        if writer not in self._processes:
            self._processes[writer] = _Process(writer)
        return self._processes[writer]


def _line_of(item: LogItem) -> int:
    return item.line


def read_console(lines: Iterable[str]) -> Iterator[LogItem]:
    """Yield the metrics of the lines of a console; progress bars may share a line with them.

    Lines are assigned by Ray's prefix, such as `(TaskRunner pid=123) `, which is the writer of a row; the rest of a
    wrapped line has none.
    """
    return Console().read(lines)


READ_LINES = (
    "{'loss': 0.1, 'reward': 0.5}, step:1 - loss:0.1 - reward:0.5, Step 1 | Loss: 0.1 | Reward: 0.5, "
    "step=1 loss=0.1, and tables with a column of steps"
)


def _read(path: Path) -> Iterator[LogItem]:
    console = Console()
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from console.read(file)
    if not console.n_rows:
        n = console.n_lines
        found = f"{n} {'line' if n == 1 else 'lines'} of text{tables_found(console.n_refused_tables)}"
        raise InvalidInput(str(path), f"has no row of metrics in {found}; lines such as these are read: {READ_LINES}")


CONSOLE = LogFormat(
    name="console",
    description="the console output of a trainer",
    matches=lambda sample: b"\x00" not in sample.data and bool(sample.head.strip()),
    read=_read,
)
MARKDOWN = LogFormat(
    name="markdown",
    description="a text with Markdown tables",
    matches=lambda sample: has_table(sample.head.splitlines()),
    read=_read,
)
