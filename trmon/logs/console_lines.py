"""Shapes of the lines in which trainers print the metrics of a step on a console, one class for each.

A shape gets every line that one process printed, and yields the rows that end in it. `begin` is the line of an open
row that a later line of the process may continue, None without one.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping

from trmon.domain.analysis.logged_steps import LogRow
from trmon.logs.log_format import LogItem, bare_number, is_number, number_text


class LineShape:
    """One way to print metrics; without more methods, one in which no row spans lines."""

    @property
    def begin(self) -> int | None:
        """The line at which an open row begins, None without one."""
        return None

    @abstractmethod
    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the rows that end in a line."""

    def finish(self) -> Iterator[LogItem]:
        """Yield the open row, or what is wrong with it."""
        return iter(())


METRIC = re.compile(
    r"loss|reward|return|score|kl\b|\bkl|entropy|accura|acc\b|grad|norm(?!al)|ratio(?!n)|advantage|length|len\b|clip"
    r"|learning.rate|\blr\b|perplexity|\bppl|solve|pass@",
    re.IGNORECASE,
)
"""What a label of a metric contains; lines without one, such as those of timings or of a server's load, are no rows."""


def has_metric(row: Mapping[str, object]) -> bool:
    """Whether a row has a label of a metric."""
    return any(METRIC.search(name) for name in row)


SEPARATOR = " - "
_STEP_PAIRS_START = re.compile(r"(?:^|\s)step:(\d+) - ")
MAX_ROW = 50_000
"""No row of pairs has more characters; a line does not continue a longer one."""
_STEP_PAIR = re.compile(r"(\S+?):([-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|inf|nan)|[a-z][\w.]*\([^()]*\))")


def begins_step_pairs(line: str) -> re.Match[str] | None:
    """Return where a line begins a row of pairs; most lines have no step, which a search for text finds at once."""
    return _STEP_PAIRS_START.search(line) if "step:" in line else None


class StepPairs(LineShape):
    """verl's `step:1 - loss:0.1 - ...`: a line is a row; a terminal may have wrapped it, within a number too."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 0

    @property
    def begin(self) -> int | None:
        return self._line if self._text else None

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the row that a line which does not continue it ends."""
        if self.is_continued_by(line):
            self._text = _joined(self._text, line)
            return
        yield from self.finish()
        found = begins_step_pairs(line)
        if found is not None:
            self._text, self._line = line[found.start() :].lstrip(), number

    def is_continued_by(self, line: str) -> bool:
        """Whether a line is the rest of the open one: all pairs of both together are whole."""
        if not 0 < len(self._text) < MAX_ROW or begins_step_pairs(line):
            return False
        was_cut = not _is_pair(self._text.rpartition(SEPARATOR)[2])
        *whole, last = _joined(self._text, line).split(SEPARATOR)
        last = last.removesuffix(" -")
        may_go_on = " " not in last and (was_cut or SEPARATOR in line)
        return all(map(_is_pair, whole)) and (_is_pair(last) or may_go_on)

    def finish(self) -> Iterator[LogItem]:
        text, self._text = self._text, ""
        row = {}
        for part in text.split(SEPARATOR) if text else ():
            pair = _STEP_PAIR.fullmatch(part.strip())
            # Another part was cut off, or another process wrote into it.
            name, value = pair.groups() if pair else part.strip().partition(":")[::2]
            row[name] = bare_number(value)
        if row:
            yield LogRow(row, self._line)


def _is_pair(text: str) -> bool:
    return _STEP_PAIR.fullmatch(text.strip()) is not None


def _joined(text: str, more: str) -> str:
    """Return both parts of a wrapped line; a terminal drops spaces where it wraps."""
    if text.endswith(" -"):
        return f"{text} {more.lstrip()}"
    return f"{text} {more}" if more.startswith("- ") else text + more


_STATED = re.compile(
    r"(?<![\w/.-])(?P<name>(?:global[ _]?|train(?:ing)?[ _])?steps?|iter(?:ation)?|update|rollout|epoch|episode)"
    r"\s*[:=#]?\s*\[?(?P<count>\d+)(?P<share>\.\d+)?(?:\s*/\s*\d+)?(?=[\s|,;:)\]]|$)",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(?:^|[\s\]])(?P<count>\d+)/\d+\s*(?=[|,;:]|- )")
_CALL = re.compile(r"\w\([A-Za-z_]\w*=")
_FIELD = re.compile(
    r"\s*(?P<label>[A-Za-z][\w ./()@%*+^-]*?)(?P<mark>\s*[:=]\s*|\s+)(?P<value>[-+.]*\d\S*|[-+]?(?:nan|inf)\b)",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\s*(?:%|[A-Za-z][\w/%.²]*)?(?:\s*\([^()]*\))?\s*[.;,]?\s*$")
_LIST = re.compile(r"(?<=[=:])\s*(?:tensor\()?\[(?P<numbers>[-+.,\s\w'\"]+)\]\)?")
"""A list, such as the rewards of a group."""
_PAIR = re.compile(r"\s*(?P<label>[A-Za-z_][\w./@-]*)(?P<mark>\s*[:=]\s*|\s+)(?P<value>[^\s,;|]+)[,;]?")


COUNTERS = ("step", "iter", "update", "rollout", "epoch", "episode", "/")
"""A line of fields has one of these texts, at least."""
MAX_FIELDS_LINE = 10_000
"""Longer lines are texts that a model wrote."""


class FieldLines(LineShape):
    """A line of fields that states a step, an epoch or a count such as `3/100`, and a metric.

    Fields stand between `|`, commas or spaces: `Step 28 | Time: 73s | Reward: 0.38` (prime-rl, Megatron),
    `[tag] 3/100 | loss=0.1`, `Epoch 3/10, Step 20/200, loss: 0.5`, `step=3 loss=0.1`. Labels stay as printed; a list
    of numbers, such as `rewards=[0.1, 0.9]`, is its mean.
    """

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the row of a line, if it is one."""
        if len(line) > MAX_FIELDS_LINE or "{" in line or not any(map(line.lower().__contains__, COUNTERS)):
            return
        if not (_STATED.search(line) or _COUNTED.search(line)) or _CALL.search(line) or begins_step_pairs(line):
            return
        row: dict[str, object] = {}
        fields: dict[str, str] = {}
        line = _LIST.sub(_mean, line) if "[" in line else line
        is_piped = "|" in line
        for segment in line.split("|") if is_piped else re.split(r"[,;](?:\s+|$)|\s-\s", line):
            begin, end = 0, 0
            for found in _STATED.finditer(segment):
                name = found["name"].lower().replace(" ", "_").removesuffix("s")
                name = {"iter": "iteration", "globalstep": "global_step", "rollout": "rollout/step"}.get(name, name)
                row.setdefault("epoch" if found["share"] else name, found["count"] + (found["share"] or ""))
                begin, end = begin if end else found.start(), found.end()
            counted = None if end or row else _COUNTED.search(f"{segment}|")
            if counted is not None:
                row["step"], end = counted["count"], counted.end()
            fields |= _pairs(segment[:begin], needs_mark=True) if "=" in segment[:begin] else {}
            fields |= _fields(" ".join(segment[end:].split()).lstrip(" :]-)>"), is_piped=is_piped)
        if row and has_metric(fields):
            yield LogRow(row | fields, number)


def _fields(text: str, *, is_piped: bool) -> dict[str, str]:
    """Return the field of a text, or its pairs; without a mark between label and number, it must be a fraction."""
    found = _FIELD.match(text)
    if found is not None and _UNIT.fullmatch(text[found.end() :]):
        value = _value(found["value"], text[found.end() :])
        if value is not None and (is_piped or found["mark"].strip() or not value.lstrip("+-").isdigit()):
            return {found["label"].strip(): value}
    return _pairs(text, needs_mark=False)


def _pairs(text: str, *, needs_mark: bool) -> dict[str, str]:
    """Return the pairs that a text consists of, from its end back to the first word that is none."""
    pairs: dict[str, str] = {}
    position = 0
    while found := _PAIR.match(text, position):
        value = _value(found["value"], "")
        is_pair = value is not None and (found["mark"].strip() or (not needs_mark and not value.isdigit()))
        if is_pair and value is not None:
            pairs[found["label"]] = value
        # What follows a label's = is its value, also where it is no number.
        position = found.end() if is_pair or found["mark"].strip() == "=" else found.end("label")
    return pairs


def _mean(found: re.Match[str]) -> str:
    """Return the mean of a list of numbers, the list itself if it has other text."""
    numbers = [text.strip("'\" ") for text in found["numbers"].split(",") if text.strip()]
    is_list = bool(numbers) and all(map(is_number, numbers))
    return f" {math.fsum(map(float, numbers)) / len(numbers):.6g}" if is_list else found[0]


def _value(text: str, unit: str) -> str | None:
    """Return the number of a field with its unit, None for other text."""
    value = number_text(text.rstrip(",;") + (unit.strip()[:1] if unit.strip().startswith("%") else ""))
    return value if is_number(value) else None


_BULLETS_HEADING = re.compile(r"^\W*step (\d+)(?:/\d+)?\W*$", re.IGNORECASE)
_SECTION = re.compile(r"^\W*(?P<name>training|validation|evaluation) results\b", re.IGNORECASE)
_BULLET = re.compile(r"^\s*•\s*(?P<label>[^:•]+):\s*(?P<value>[-+.\d]\S*|nan|-?inf)", re.IGNORECASE)
VALIDATION = "validation/"


class BulletList(LineShape):
    """NeMo-RL's bullets are a row: those after a heading with a step, else those up to a label that comes again.

    Bullets of validation results have the prefix `validation/`. Labels stay as printed.
    """

    def __init__(self) -> None:
        self._step: dict[str, object] = {}
        self._row: dict[str, object] = {}
        self._prefix = ""
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the row that a new one ends."""
        heading = _BULLETS_HEADING.match(line)
        section = _SECTION.match(line)
        bullet = _BULLET.match(line)
        if heading is not None:
            yield from self.finish()
            self._step, self._line = {"step": heading[1]}, number
        elif section is not None:
            self._prefix = "" if section["name"].lower() == "training" else VALIDATION
        elif bullet is not None:
            name, value = self._prefix + bullet["label"].strip(), number_text(bullet["value"].rstrip("s"))
            if name in self._row and not self._step:
                yield from self.finish()
            if not self._row and not self._step:
                self._line = number
            if is_number(value):
                self._row.setdefault(name, value)

    def finish(self) -> Iterator[LogItem]:
        row, step, self._row, self._step, self._prefix = self._row, self._step, {}, {}, ""
        if has_metric(row):
            yield LogRow(step | row, self._line)


_GRID_HEADING = re.compile(r"\bTrain step (\d+)/\d+ done")
CELL = "│"


class MetricGrid(LineShape):
    """AReaL's grids: the cells of all grids after a heading, up to the next, are a row."""

    def __init__(self) -> None:
        self._row: dict[str, object] = {}
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the row that a new heading ends."""
        heading = _GRID_HEADING.search(line) if "Train step" in line else None
        if heading is not None:
            yield from self.finish()
            self._row, self._line = {"step": heading.group(1)}, number
        elif self._row and CELL in line:
            cells = [cell.strip() for cell in line.split(CELL)[1:-1]]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            self._row |= {name: value for name, value in pairs if name and is_number(value)}

    def finish(self) -> Iterator[LogItem]:
        row, self._row = self._row, {}
        if len(row) > 1:
            yield LogRow(row, self._line)
