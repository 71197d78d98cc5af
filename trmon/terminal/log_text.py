"""What was read of a log, as an answer and as text: the same for `diagnose`, `import` and `watch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from trmon.domain.analysis.logged_steps import LogTally, StepSource
from trmon.domain.framework_names.translation import trmon_name
from trmon.domain.framework_names.user_names import nearest_names
from trmon_client.api.answers import AnswerInfo, says

SHOWN_NAMES = 10
STEP_SOURCES = {
    StepSource.STATED: "",
    StepSource.BARS: " (by the progress bars: most rows state none)",
    StepSource.ROWS: " (rows are counted: most state no step)",
}


class LogReadInfo(AnswerInfo, frozen=True, kw_only=True):
    """What was read of a log."""

    format: str
    framework: Annotated[str | None, says("Whose metric names were recognised; null for none.")]
    n_rows: Annotated[int, says("Steps of which something was read.")]
    n_lines: Annotated[int, says("Lines with metrics; a step may have several.")]
    n_replaced: Annotated[int, says("Lines that repeat signals of their step; the last one counts.")]
    n_attempts: Annotated[int, says("Starts of the trainer: it went back in steps between them.")]
    step_source: Annotated[StepSource, says("Where steps come from: stated, progress bars, or counted rows.")]
    first_step: int
    last_step: int
    signals: Annotated[dict[str, str], says("The signals that were found, and the names that they were read from.")]
    unknown: Annotated[
        dict[str, tuple[str, ...]], says("Names of numbers that no table knows, and the nearest known ones.")
    ]
    left_out: Annotated[dict[str, str], says("Other names that were not read, and why.")]
    defects: Annotated[tuple[str, ...], says("Places that were not read as they are written, and notes on others.")]


def log_read_info(read: LogTally, *, format_name: str) -> LogReadInfo:
    """Return what was read of a log. Args: format_name: of its format."""
    steps = [step for _, step in read.steps]
    return LogReadInfo(
        format=format_name,
        framework=read.survey.framework,
        n_rows=len(read.steps),
        n_lines=read.survey.n_rows,
        n_replaced=read.n_replaced,
        n_attempts=read.n_attempts,
        step_source=read.survey.step_source,
        first_step=min(steps, default=0),
        last_step=max(steps, default=0),
        signals=read.names,
        unknown={name: nearest_names(name) for name in read.unknown},
        left_out=read.left_out,
        defects=tuple(map(str, read.defects)),
    )


def log_lines(found: LogReadInfo, *, is_verbose: bool = False) -> Iterator[str]:
    """Yield what was read as lines of text. Args: is_verbose: all names, and the reasons of those left out."""
    names = f"{found.framework}'s names" if found.framework else "no framework recognised"
    if found.framework is None and all(map(trmon_name, found.signals.values())):
        names = "trmon's names"
    first, last = found.first_step, found.last_step
    steps = f"{f'step {first}' if first == last else f'steps {first} to {last}'}{STEP_SOURCES[found.step_source]}"
    rows = f"{found.n_rows} row{'' if found.n_rows == 1 else 's'}"
    lines = "" if found.n_lines == found.n_rows else f" ({found.n_lines} lines)"
    yield f"{found.format}, {rows}{lines}, {steps}, {names}"
    if found.n_replaced:
        yield f"{found.n_replaced} lines repeat signals of their step; the last one counts"
    if found.n_attempts > 1:
        yield f"{found.n_attempts} attempts: the trainer went back in steps"
    most = None if is_verbose else SHOWN_NAMES
    if found.signals:
        words = (signal if signal == name else f"{signal} ({name})" for signal, name in found.signals.items())
        yield f"signals: {_listed(words, most, len(found.signals))}"
    if found.unknown:
        like = {name: ", ".join(nearest) for name, nearest in found.unknown.items()}
        words = (f"{name} (like {known}?)" if known else name for name, known in like.items())
        yield f"not understood: {_listed(words, most, len(found.unknown))}"
    if is_verbose:
        yield from (f"left out: {name} ({why})" for name, why in found.left_out.items())


def _listed(words: Iterable[str], most: int | None, n: int) -> str:
    """Return the first words and how many more there are."""
    shown = list(islice(words, most))
    return ", ".join(shown) + (f" and {n - len(shown)} more (--verbose)" if n > len(shown) else "")
