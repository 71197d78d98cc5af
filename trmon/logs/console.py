"""Console output of trainers: one class for each shape of a line, among lines without metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.logs.log_format import LogFormat, LogItem, bare_number

SEPARATOR = " - "
_STEP_PAIRS_START = re.compile(r"(?:^|\s)step:(\d+) - ")
_STEP_PAIR = re.compile(r"(\S+?):([-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|inf|nan)|[a-z][\w.]*\([^()]*\))")


class StepPairs:
    """A line is a row; a terminal may have wrapped it, within a number too."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a line which does not continue it ends."""
        if self.is_continued_by(line):
            self._text = _joined(self._text, line)
            return
        yield from self.finish()
        found = _STEP_PAIRS_START.search(line)
        if found is not None:
            self._text, self._line = line[found.start() :].lstrip(), number

    def is_continued_by(self, line: str) -> bool:
        """Whether a line is the rest of the open one: all pairs of both together are whole."""
        if not self._text or _STEP_PAIRS_START.search(line):
            return False
        was_cut = not _is_pair(self._text.rpartition(SEPARATOR)[2])
        *whole, last = _joined(self._text, line).split(SEPARATOR)
        last = last.removesuffix(" -")
        may_go_on = " " not in last and (was_cut or SEPARATOR in line)
        return all(map(_is_pair, whole)) and (_is_pair(last) or may_go_on)

    def finish(self) -> Iterator[LogRow]:
        """Yield the open row."""
        text, self._text = self._text, ""
        row = {}
        for part in text.split(SEPARATOR) if text else ():
            pair = _STEP_PAIR.fullmatch(part.strip())
            name, value = pair.groups() if pair else _cut_pair(part)
            row[name] = bare_number(value)
        if row:
            yield LogRow(row, self._line)


def _is_pair(text: str) -> bool:
    return _STEP_PAIR.fullmatch(text.strip()) is not None


def _cut_pair(part: str) -> tuple[str, str]:
    """Return the name of a pair that was cut off or that another process wrote into, and what stands as its value."""
    name, _, value = part.strip().partition(":")
    return name, value


def _joined(text: str, more: str) -> str:
    """Return both parts of a wrapped line; a terminal drops spaces where it wraps."""
    if text.endswith(" -"):
        return f"{text} {more.lstrip()}"
    return f"{text} {more}" if more.startswith("- ") else text + more


MAX_LINES = 2000
_PAIR = re.compile(
    r"""(?P<quote>['"])(?P<name>[^'"\n]+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<mark>['"])(?P<text>[^'"\n]*)(?P=mark)|(?P<bare>[^,{}\[\]'"\s][^,{}\[\]'"]*(?:\([^)]*\))?))"""
)
_STEP = re.compile(r"\b(step|rollout|perf)\s+(\d+)\b\W*$", re.IGNORECASE)
_BAR = re.compile(r"\|\s*(\d+)/\d+ \[")
_STEP_NAMES = {"step": "step", "rollout": "rollout/step", "perf": "rollout/step"}


class Dictionaries:
    """A dictionary is a row; its step is what it states, else the words before it, else the last progress bar."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._begin = 0
        self._depth = 0
        self._words = ""
        self._bar: str | None = None

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the rows of the dictionaries that end in this line."""
        if self._depth == 0:
            begin = line.find("{")
            before = line if begin < 0 else line[:begin]
            self._note_bar(before)
            if begin < 0 or not _begins_row(line[begin:]):
                self._words = line if line.strip() else self._words
                return
            self._words, line = before if before.strip() else self._words, line[begin:]
            self._begin = number
        self._open.append(line)
        self._depth += line.count("{") - line.count("}")
        if self._depth <= 0:
            yield from self._close()
        elif len(self._open) > MAX_LINES:
            yield from self.finish()

    def finish(self) -> Iterator[LogItem]:
        """Yield a defect for a dictionary that does not end, of which nothing is read."""
        if self._open and _PAIR.search("\n".join(self._open)):
            yield LogDefect(self._begin, "begins a dictionary that does not end", is_end=True)
        self._open, self._depth = [], 0

    def _note_bar(self, text: str) -> None:
        counts = _BAR.findall(text)
        self._bar = counts[-1] if counts else self._bar

    def _close(self) -> Iterator[LogItem]:
        text, self._open, self._depth = "\n".join(self._open), [], 0
        row: dict[str, object] = dict(self._stated_step())
        for pair in _PAIR.finditer(text):
            value = pair["text"] if pair["bare"] is None else bare_number(pair["bare"])
            row[pair["name"]] = None if value in ("None", "null") else value
        self._words = ""
        if len(row) > 1:
            yield LogRow(row, self._begin)

    def _stated_step(self) -> Iterator[tuple[str, object]]:
        found = _STEP.search(self._words)
        if found is not None:
            yield _STEP_NAMES[found.group(1).lower()], found.group(2)
        elif self._bar is not None:
            yield "step", self._bar


def _begins_row(text: str) -> bool:
    """Whether a brace opens a dictionary: a quoted key follows it, or the line ends."""
    rest = text[1:].lstrip()
    return not rest or rest[0] in "'\""


_PIPED_START = re.compile(r"\bStep (\d+) \|")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z. -]*?)\s+([-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)\b")
PIPED_NAMES = {
    "Loss": "loss/mean",
    "Entropy": "entropy/all/mean",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "Reward": "train/agg/effective/reward/mean",
    "Max Off-Policy": "off_policy/max",
}
"""The metrics that prime-rl prints, and their names in its other logs."""


class PipedFields:
    """A line is a row; the trainer and the orchestrator print one each."""

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row of a line, if it is one."""
        found = _PIPED_START.search(line)
        if found is None:
            return
        fields = (_FIELD.match(field) for field in line[found.end() :].split("|"))
        row = {PIPED_NAMES[field[1]]: field[2] for field in fields if field is not None and field[1] in PIPED_NAMES}
        if row:
            yield LogRow({"step": found.group(1), **row}, number)

    def finish(self) -> Iterator[LogRow]:
        """Yield nothing: no row spans lines."""
        return iter(())


_BULLETS_HEADING = re.compile(r"={5,} Step (\d+)/\d+ ={5,}")
_BULLET = re.compile(r"•\s*([A-Za-z ]+):\s*([-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)")
BULLET_NAMES = {
    "Loss": "loss",
    "Generation KL Error": "gen_kl_error",
    "Avg Reward": "reward",
    "Avg Total Reward": "reward",
    "Mean Generation Length": "mean_gen_tokens_per_sample",
    "Total step time": "timing/train/total_step_time",
}
"""The metrics that NeMo-RL prints, and their names in its other logs."""


class BulletList:
    """The bullets between two headings are a row."""

    def __init__(self) -> None:
        self._row: dict[str, object] = {}
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a new heading ends."""
        heading = _BULLETS_HEADING.search(line)
        if heading is not None:
            yield from self.finish()
            self._row, self._line = {"step": heading.group(1)}, number
            return
        bullet = _BULLET.search(line)
        if bullet is not None and self._row and bullet[1] in BULLET_NAMES:
            self._row.setdefault(BULLET_NAMES[bullet[1]], bullet[2])

    def finish(self) -> Iterator[LogRow]:
        """Yield the last row."""
        row, self._row = self._row, {}
        if len(row) > 1:
            yield LogRow(row, self._line)


_GRID_HEADING = re.compile(r"\bTrain step (\d+)/\d+ done")
_NUMBER = re.compile(r"^(?:[-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)$")
CELL = "│"


class MetricGrid:
    """The cells of all grids after a heading, up to the next, are a row."""

    def __init__(self) -> None:
        self._row: dict[str, object] = {}
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a new heading ends."""
        heading = _GRID_HEADING.search(line)
        if heading is not None:
            yield from self.finish()
            self._row, self._line = {"step": heading.group(1)}, number
        elif self._row and CELL in line:
            cells = [cell.strip() for cell in line.split(CELL)[1:-1]]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            self._row |= {name: value for name, value in pairs if name and _NUMBER.match(value)}

    def finish(self) -> Iterator[LogRow]:
        """Yield the last row."""
        row, self._row = self._row, {}
        if len(row) > 1:
            yield LogRow(row, self._line)


_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_RAY_PREFIX = re.compile(r"\s*\(([^()\s][^()]*? pid=\d+(?:, ip=[^()\s]+)?)\) ?")


class _Process:
    """The shapes of lines that one process prints; processes may print between the lines of each other."""

    def __init__(self) -> None:
        self.pairs = StepPairs()
        self._shapes = (self.pairs, Dictionaries(), PipedFields(), BulletList(), MetricGrid())

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from shape.add_line(line, number)

    def finish(self) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from shape.finish()


def read_console(lines: Iterator[str]) -> Iterator[LogItem]:
    """Yield the metrics of the lines of a console; progress bars may share a line with them.

    Lines are told apart by Ray's prefix, such as `(TaskRunner pid=123) `; the rest of a wrapped line has none.
    """
    processes: defaultdict[str, _Process] = defaultdict(_Process)
    former = ""
    for number, line in enumerate(lines, start=1):
        for part in _ESCAPE.sub("", line).replace("\r", "\n").splitlines():
            prefix = _RAY_PREFIX.match(part)
            text = part[prefix.end() :] if prefix else part
            if prefix is not None or not processes[former].pairs.is_continued_by(text):
                former = prefix[1] if prefix else ""
            yield from processes[former].add_line(text, number)
    for process in processes.values():
        yield from process.finish()


def _read(path: Path) -> Iterator[LogItem]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from read_console(file)


CONSOLE = LogFormat(
    name="console",
    description="the console output of a trainer",
    matches=lambda sample: "\x00" not in sample.head and bool(sample.head.strip()),
    read=_read,
)
