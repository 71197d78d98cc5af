"""Remedies of findings: what to do, in words and in the options of the run's own framework, from remedies.yaml.

An option is named only where the framework is known and has it. Its value is exact: of a half or a double the present
value is read from the configuration, never from a log, and a value that is set already is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

from trmon.domain.findings.configuration import (
    IMPORTED,
    config_value,
    decimal_of,
    decimal_text,
    has_option,
    is_imported,
    is_reference,
    plain_value,
)
from trmon.domain.framework_names.translation import FRAMEWORKS
from trmon.domain.runs.run import Run, SavedCheckpoint
from trmon_client.core.logprob_mistakes import LogprobMistake
from trmon_client.core.wire.messages import decodable

MAX_OPTIONS = 3
"""Options to change at once, at most; with more it is not known which one helped."""
SMALL_MODEL_BILLIONS = Decimal(4)
"""A model of so many parameters, in billions, fits on one GPU beside its cache."""
CHECKPOINT = "checkpoint"
REPORTS_CHECKPOINTS = "launch.reports_checkpoints"
"""The entry of a configuration by which a trainer's integration says that it reports each checkpoint."""
VALUE_OF = "@"
"""The start of a value that is the present value of another option."""
AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do about a finding.

    `first` is a sentence or two, `then` what to do if the finding persists, empty if there is nothing else. `options`
    are the options to set now, with their values as text; an empty value is a flag. `options_in_words` are options
    whose value does not follow from what is known. `then_options` and `then_options_in_words` belong to `then`.
    `not_known` says in a sentence what is lacking for values now, or is empty. `release` is the release whose options
    they are, `to_paste` the options to set now as they are written there. `checkpoint` says which one is the newest by
    the last good step, or that there is none, and is empty without such a step; `checkpoint_step` and `checkpoint_path`
    are of one that the trainer has reported.
    """

    first: str
    then: str
    options: dict[str, str]
    options_in_words: dict[str, str]
    then_options: dict[str, str]
    then_options_in_words: dict[str, str]
    not_known: str
    release: str
    to_paste: tuple[str, ...]
    checkpoint: str
    checkpoint_step: int | None
    checkpoint_path: str | None


@decodable
class _Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    of: str
    times: float | None = None
    up_to: float | None = None
    at_most: float | None = None
    whole: bool = False
    in_words: bool = False
    small_model: bool = False

    @property
    def words(self) -> str:
        """The relation to the present value, where that is not known."""
        if self.times is None:
            return f"at most {decimal_text(Decimal(str(self.at_most)))}"
        limit = "" if self.up_to is None else f", {self.up_to} at most"
        return {0.5: "half of what it is", 2.0: "twice what it is"}.get(
            self.times, f"{self.times} times what it is{limit}"
        )


@decodable
class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    first: str = ""
    then: str
    change: tuple[str | _Change, ...] = ()
    then_change: tuple[str | _Change, ...] = ()


@decodable
class _Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    option: str
    folder: str = ""
    every: str = ""
    kept: str = ""
    name: str = ""
    quote: str = ""
    beside: dict[str, str] = {}


_NO_CHECKPOINT = _Checkpoint(option="")


@decodable
class _Framework(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    release: str
    files: dict[str, tuple[str, ...]]
    known_by: tuple[tuple[str, ...], ...]
    unless: tuple[str, ...] = ()
    written: str
    model: str
    defaults: dict[str, str] = {}
    only_if: dict[str, dict[str, tuple[str, ...]]] = {}
    quantities: dict[str, str | tuple[str, ...]]
    switches: dict[str, dict[str, str]]
    checkpoint: _Checkpoint = _NO_CHECKPOINT

    def options_of(self, quantity: str) -> tuple[str, ...]:
        """Return the options of a quantity; none if the framework lacks it."""
        given = self.quantities.get(quantity, ())
        return (given,) if isinstance(given, str) else given


_NO_FRAMEWORK = _Framework(release="", files={}, known_by=(), written="", model="", quantities={}, switches={})


@decodable
class _Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signals: tuple[str, ...]
    client: str
    log: str
    options: dict[str, str] = {}


@decodable
class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    remedies: dict[str, _Entry]
    frameworks: dict[str, _Framework]
    measures: dict[str, _Measure]


@cache
def _file() -> _File:
    content = files("trmon.domain.findings").joinpath("remedies.yaml").read_bytes()
    file = msgspec.yaml.decode(content, type=_File)
    # The words of what the client finds by value are the client's.
    of_client = {one.value: msgspec.structs.replace(file.remedies[one.value], first=one.fix) for one in LogprobMistake}
    return msgspec.structs.replace(file, remedies={**file.remedies, **of_client})


def frameworks_with_options() -> tuple[str, ...]:
    """Return the frameworks whose options remedies name."""
    return tuple(_file().frameworks)


def framework_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the framework whose options a configuration has; None where none or several are possible.

    For an imported log it is the framework whose metric names were recognised.

    Args: config: nested, or with dotted names; options of a command line as argparse names them.
    """
    if is_imported(config):
        return config_value(config, f"{IMPORTED}.framework")
    found = [
        name
        for name, framework in _file().frameworks.items()
        if any(all(has_option(config, option) for option in options) for options in framework.known_by)
        and not any(has_option(config, option) for option in framework.unless)
    ]
    return found[0] if len(found) == 1 else None


def remedy(
    key: str,
    *,
    framework: str | None,
    config: Mapping[str, Any],
    last_good_step: int | None,
    has_ended: bool,
    checkpoints: Sequence[SavedCheckpoint] | None = None,
) -> Remedy:
    """Return the remedy of a finding, or of one of its forms.

    Where all that `first` asks for is set already, what to do next comes first.
    Args: key: a key of remedies.yaml; framework: None, or without options here: words only; config: see
        `framework_of_config`, with exact numbers; last_good_step: None if there is none or it is not known; has_ended:
        the words are then for the next run; checkpoints: that the trainer has reported, None where no trainer could.
    Errors: KeyError for a key without a remedy.
    """
    entry = _file().remedies[key]
    known = _file().frameworks.get(framework or "", _NO_FRAMEWORK)
    facts = _Facts(known, config, last_good_step, checkpoints)
    saved = facts.saved
    first, settings = entry.first, facts.settings(entry.change)
    then, later = entry.then, facts.settings(entry.then_change)
    if settings.already_set > 0 and not settings.values and not settings.in_words:
        first, settings, then, later = then, later, "", _Settings()
    words = facts.filled(first, has_ended=has_ended)
    return Remedy(
        first=f"In the next run, {words[:1].lower()}{words[1:]}" if has_ended else words,
        then=facts.filled(then, has_ended=has_ended),
        options=settings.values,
        options_in_words=settings.in_words,
        then_options=later.values,
        then_options_in_words=later.in_words,
        not_known=facts.not_known(settings.in_words),
        release=f"{framework} {known.release}" if known.release else "",
        to_paste=tuple(known.written.format(option=at, value=value).rstrip() for at, value in settings.values.items()),
        checkpoint=facts.checkpoint_sentence(),
        checkpoint_step=None if saved is None else saved.step,
        checkpoint_path=None if saved is None else saved.path,
    )


def remedy_of(key: str, run: Run, *, last_good_step: int | None, has_ended: bool) -> Remedy:
    """Return the remedy of a finding in the options of a run. Args: key: the finding's key of remedies.yaml."""
    return remedy(
        key,
        framework=framework_of_config(run.config),
        config=run.config,
        last_good_step=last_good_step,
        has_ended=has_ended,
        checkpoints=run.checkpoints,
    )


def how_to_measure(name: str, *, framework: str | None, from_log: bool) -> str:
    """Return a clause that says how to measure what is not measured, such as `pass rewards to log_batch`.

    Args: name: a signal, or a kind of remedies.yaml's `measures`; framework: of the run or of the log; from_log:
        whether the reader has a log of a trainer and does not send with the client.
    """
    kind, measure = next(
        ((kind, one) for kind, one in _file().measures.items() if any(fnmatchcase(name, at) for at in one.signals)),
        (name, _file().measures.get(name)),
    )
    if measure is None:
        return f"log {name}" if from_log else f'call log_scalars(step, {{"{name}": ...}})'
    option = (
        next((table.agreement for table in FRAMEWORKS if table.framework == framework), "")
        if kind == AGREEMENT
        else measure.options.get(framework or "")
    )
    if not from_log:
        return f"set {option}, or {measure.client}" if option else measure.client
    if option:
        return f"set {option}"
    if kind == AGREEMENT and framework in _file().frameworks:
        return f"look for it in the other logs of the run: {framework} logs it without an option"
    return measure.log


@dataclass(slots=True)
class _Settings:
    """Options to set, options in words, and how many are set already."""

    values: dict[str, str] = field(default_factory=dict)
    in_words: dict[str, str] = field(default_factory=dict)
    already_set: int = 0

    def add(self, other: _Settings) -> None:
        """Add the options of a change unless they would be too many."""
        self.already_set += other.already_set
        new = {**other.values, **other.in_words}
        if len({**self.values, **self.in_words, **new}) <= MAX_OPTIONS:
            self.values |= other.values
            self.in_words |= other.in_words


class _Present(Enum):
    RIGHT = "the present value is right already"


_Value: TypeAlias = str | _Present | None
"""The text of a value; None where it does not follow from what is known."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a run: its framework, its configuration, its last good step, and the reported checkpoints."""

    framework: _Framework
    config: Mapping[str, Any]
    last_good_step: int | None
    checkpoints: Sequence[SavedCheckpoint] | None

    @property
    def saved(self) -> SavedCheckpoint | None:
        """The newest reported checkpoint by the last good step."""
        last_good = -1 if self.last_good_step is None else self.last_good_step
        return max((one for one in self.checkpoints or () if one.step <= last_good), default=None)

    def checkpoint_sentence(self) -> str:
        """Return which checkpoint to go back to, or that there is none; empty where no step is known to be good."""
        saved, step = self._saved_step(), self.last_good_step
        if step is None or (saved is None and (self.checkpoints is None or is_imported(self.config))):
            return ""
        if self.saved is not None:
            return f"Checkpoint to go back to: {self.saved.path} (step {self.saved.step})."
        if saved is None:
            return "No checkpoint is known: the trainer has reported none."
        if saved == 0:
            return f"No checkpoint was saved by step {step}."
        kept = ", if it was kept" if self._is_maybe_deleted else ""
        return f"Checkpoint to go back to: that of step {saved} by the configuration{kept}; its path is not reported."

    def settings(self, changes: Iterable[str | _Change]) -> _Settings:
        """Return the options of the changes in their order, as many as are allowed at once."""
        settings = _Settings()
        for change in changes:
            settings.add(self._changed(change))
        return settings

    def filled(self, text: str, *, has_ended: bool) -> str:
        """Return a text with the checkpoint to go back to."""
        checkpoint = self._checkpoint_words()
        return text.format(
            checkpoint=checkpoint, go_back=f"{'Start from' if has_ended else 'Stop and go back to'} {checkpoint}"
        )

    def not_known(self, in_words: Iterable[str]) -> str:
        """Return a sentence on what is lacking to name values; empty if nothing is."""
        if not self.framework.release:
            return "The framework is not known, so no option is named."
        missing = [option for option in in_words if config_value(self.config, option) is None]
        return f"Not in the configuration: {', '.join(missing)}." if missing else ""

    def _changed(self, change: str | _Change) -> _Settings:
        if isinstance(change, _Change):
            options = self.framework.options_of(change.of)
            if change.small_model and not self._is_known_to_be_small(options):
                return _Settings()
            return self._rendered({option: (self._related(option, change), change.words) for option in options})
        if change == CHECKPOINT:
            return self._resumed(self.framework.checkpoint)
        switch = self.framework.switches.get(change, {})
        return self._rendered({option: self._fixed(option, value) for option, value in switch.items()})

    def _rendered(self, options: Mapping[str, tuple[_Value, str]]) -> _Settings:
        """Return options with their values; those that do not count in this run are left out."""
        settings = _Settings()
        for option, (value, words) in options.items():
            counts, condition = self._condition(option)
            if counts is False:
                continue
            if value is _Present.RIGHT:
                # Without a configuration it is only the framework's default.
                settings.already_set += bool(self.config)
            elif value is not None and counts:
                settings.values[option] = value
            else:
                settings.in_words[option] = f"{words}{condition}"
        if settings.in_words:
            # Half of a change may be worse than none.
            settings.in_words = {
                option: settings.in_words.get(option, settings.values.get(option) or "set")
                for option in options
                if option in {**settings.in_words, **settings.values}
            }
            settings.values.clear()
        return settings

    def _condition(self, option: str) -> tuple[bool | None, str]:
        """Return whether an option counts in this run, None if that is not known, and its condition in words."""
        for other, values in self.framework.only_if.get(option, {}).items():
            present = config_value(self.config, other)
            if present is None:
                return None, f", where {other} is {' or '.join(values)}"
            # AReaL writes the layout of the GPUs behind the name of its engine.
            return plain_value(present).partition(":")[0] in values, ""
        return True, ""

    def _related(self, option: str, change: _Change) -> _Value:
        present = decimal_of(config_value(self.config, option))
        if present is None or change.in_words:
            return None
        if change.at_most is not None:
            limit = Decimal(str(change.at_most))
            return decimal_text(limit) if present > limit else _Present.RIGHT
        factor = Decimal(str(change.times))
        value = present * factor
        if change.up_to is not None:
            value = min(value, Decimal(str(change.up_to)))
        if change.whole:
            value = max(Decimal(1), value // 1)
        if present <= 0 or (value >= present if factor < 1 else value <= present):
            return _Present.RIGHT
        return decimal_text(value)

    def _fixed(self, option: str, value: str) -> tuple[_Value, str]:
        words, follows = value or "set", value.startswith(VALUE_OF)
        if follows:
            other = value.removeprefix(VALUE_OF)
            words, known = f"the value of {other}", config_value(self.config, other)
            if known is None or is_reference(known):
                return None, words
            value = str(known)
        present = config_value(self.config, option)
        if is_reference(present):
            return None, words
        if present is None and has_option(self.config, option):
            present = "null"
        elif present is None:
            present = self.framework.defaults.get(option)
        right = {plain_value(value or True), *(("null",) if follows else ())}
        return (_Present.RIGHT if present is not None and plain_value(present) in right else value), words

    def _resumed(self, checkpoint: _Checkpoint) -> _Settings:
        saved, folder = self._saved_step(), config_value(self.config, checkpoint.folder)
        if not checkpoint.option or saved == 0:
            return _Settings()
        beside = {option: self._fixed(option, value) for option, value in checkpoint.beside.items()}
        is_unknown = saved is None or self._is_maybe_deleted
        if is_unknown or (self.saved is None and checkpoint.folder and (folder is None or is_reference(folder))):
            words = self._checkpoint_words()
            return self._rendered({**beside, checkpoint.option: (None, words)})
        path = f"{folder}/{checkpoint.name}{saved}" if checkpoint.folder else str(saved)
        if self.saved is not None and checkpoint.folder:
            path = self.saved.path
        if not _PASTABLE.fullmatch(path):
            return self._rendered({**beside, checkpoint.option: (None, self._checkpoint_words())})
        quoted = f"{checkpoint.quote}{path}{checkpoint.quote}"
        return self._rendered({**beside, checkpoint.option: self._fixed(checkpoint.option, quoted)})

    def _checkpoint_words(self) -> str:
        step, saved = self.last_good_step, self._saved_step()
        if step is None:
            return "a checkpoint from before it began, if there is one"
        if saved is None:
            return f"the last checkpoint at or before step {step}"
        if saved == 0:
            return f"the start, as no checkpoint was saved by step {step}"
        kept = ", if it was kept" if self._is_maybe_deleted else ""
        return f"the checkpoint of step {saved}{kept}"

    def _saved_step(self) -> int | None:
        """Return the step of the last checkpoint by the last good step, 0 if none was saved; None if not known."""
        if self.last_good_step is None:
            return None
        if self.checkpoints or config_value(self.config, REPORTS_CHECKPOINTS) is True:
            return 0 if self.saved is None else self.saved.step
        every = decimal_of(config_value(self.config, self.framework.checkpoint.every))
        if every is None or every < 1 or every != int(every):
            return None
        return self.last_good_step - self.last_good_step % int(every)

    @property
    def _is_maybe_deleted(self) -> bool:
        return self.saved is None and (decimal_of(config_value(self.config, self.framework.checkpoint.kept)) or 0) > 0

    def _is_known_to_be_small(self, options: Iterable[str]) -> bool:
        scale = {"b": Decimal(1), "m": Decimal("0.001")}
        sizes = [
            Decimal(count or 1) * Decimal(size) * scale[unit.lower()]
            for count, size, unit in _SIZE.findall(str(config_value(self.config, self.framework.model)))
        ]
        are_known = all(decimal_of(config_value(self.config, option)) for option in options)
        return are_known and bool(sizes) and max(sizes) <= SMALL_MODEL_BILLIONS


_PASTABLE = re.compile(r"[\w./:@%+=, ~-]+")
"""Paths without what a shell would act on within quotes."""
_SIZE = re.compile(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z])", re.IGNORECASE)
