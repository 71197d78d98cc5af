"""Runbooks: confirm a problem, rule out others, mitigate it, verify that it is over; of a run with its values."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import msgspec

from trmon.domain.findings.catalogue import Catalogue, Clause
from trmon.domain.findings.configuration import config_value, is_imported
from trmon.domain.findings.measures import sources_of
from trmon.domain.findings.remedies import Remedy, remedy, remedy_of
from trmon.domain.findings.sentences import OF_TRUTH, comparison_words, evidence_words
from trmon.domain.findings.verdict import REWARD_FINDINGS, Found, Judgement
from trmon.domain.health.problems import title_of_rule
from trmon.domain.rules.condition import comparisons_of
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.run import Run
from trmon_client.api.diagnosis import AnswersInfo, RunbookStageInfo
from trmon_client.core.signals.catalogue import SIGNALS
from trmon_client.core.wire.messages import decodable

MAX_WORDS = 300
"""The longest text of a note that a command writes."""
AROUND = 10
"""How many steps before the last good one are shown."""
OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
WITHOUT_VALUE = ("lost", "nonfinite")
"""Transforms whose words hold no value."""


Stage: TypeAlias = Literal["confirm", "rule out", "mitigate", "verify"]
"""The stages of a runbook, in order."""


@decodable
class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    confirm: str
    rule_out: str
    rule_out_commands: tuple[str, ...] = ()
    attempt: tuple[str, ...] = msgspec.field(default=(), name="try")
    worst_by: str = "drift"


NO_ENTRY = _Entry(confirm="", rule_out="")


@decodable
class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    commands: dict[str, tuple[str, ...]]
    verify: dict[str, str]
    answers: dict[str, str]
    entries: dict[str, _Entry]


@cache
def runbooks_file() -> _File:
    """Return the content of runbooks.yaml."""
    content = files("trmon.domain.findings").joinpath("runbooks.yaml").read_bytes()
    return msgspec.yaml.decode(content, type=_File)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookFacts:
    """What is known of a run: its judgement, the names of its signals, the alert to act on, and the service's URL.

    `todo` is the first thing to do, as the run's verdict says it. `url` is empty where commands need none.
    """

    run: Run
    judgement: Judgement | None
    names: Collection[str]
    since_step: int | None
    todo: str
    summary: str = ""
    url: str = ""

    def found(self, name: str) -> Found | None:
        """Return the finding that stands under a name."""
        standing = () if self.judgement is None else self.judgement.findings
        return next((one for one in standing if one.finding == name), None)


def runbook_of(
    name: str, *, catalogue: Catalogue, rule: Rule | None, facts: RunbookFacts | None = None
) -> tuple[RunbookStageInfo, ...]:
    """Return the stages of the runbook of a finding or rule.

    Args: rule: the active rule of that name; facts: of a run; None: without values.
    """
    book = _Book(name, catalogue, rule, facts, runbooks_file().entries.get(name, NO_ENTRY))
    return (book.confirm(), book.rule_out(), book.mitigate(), book.verify())


@dataclass(frozen=True, slots=True)
class _Book:
    name: str
    catalogue: Catalogue
    rule: Rule | None
    facts: RunbookFacts | None
    entry: _Entry

    def confirm(self) -> RunbookStageInfo:
        found = self.facts.found(self.name) if self.facts is not None else None
        here = [evidence_words(one) for one in found.evidence] if found is not None else []
        if self.facts is not None and found is None and self.facts.summary:
            here = [self.facts.summary.removeprefix(f"{self.facts.run.key}: ")]
        lines = (self.entry.confirm, f"Here: {'; '.join(here)}." if here else "")
        return self._stage("confirm", lines)

    def rule_out(self) -> RunbookStageInfo:
        lines = (self.entry.rule_out, *self._causes())
        return self._stage("rule out", lines, self.entry.rule_out_commands)

    def mitigate(self) -> RunbookStageInfo:
        known = self._remedy()
        first = self.rule.runbook if known is None and self.rule is not None else ""
        first = known.first if known is not None else (self.facts.todo if self.facts is not None else "") or first
        then = f"If it persists: {known.then[:1].lower()}{known.then[1:]}" if known is not None and known.then else ""
        options = () if known is None else known.to_paste
        checkpoint = "" if known is None else known.checkpoint
        lines = (first, checkpoint, then)
        return self._stage("mitigate", lines, self.entry.attempt, options=options, words=first)

    def verify(self) -> RunbookStageInfo:
        texts = runbooks_file().verify
        if self.facts is not None and self.facts.run.state.ended:
            return self._stage("verify", (texts["ended"],))
        is_finding = self.name in self.catalogue.by_id
        lines = (self._ends_when(), texts["finding" if is_finding else "rule"])
        return self._stage("verify", lines)

    def _causes(self) -> Iterator[str]:
        """Yield what comes before the finding in the order of causes, of a run with whether it stands."""
        before = [one for one in self.catalogue.findings if self.name in one.explains]
        if self.facts is None:
            if self.name in REWARD_FINDINGS:
                yield "Every other finding comes before it: the reward falls last."
            elif before:
                yield f"What comes before it, if it stands: {', '.join(f'`{one.id}`' for one in before)}."
            return
        told = {one.id for one in before}
        standing = () if self.facts.judgement is None else self.facts.judgement.findings
        others = [one for one in standing if one.finding != self.name]
        for one in others:
            role = "comes before it" if one.finding in told or self.name in REWARD_FINDINGS else "stands too"
            yield f"{one.title[:1].upper()}{one.title[1:]} {role}, since step {one.since.step}."
        left = [one for one in before if one.id not in {other.finding for other in others}]
        measured = [one for one in left if self._is_measured(one.clauses)]
        if measured:
            yield f"Not found: {', '.join(one.title for one in measured)}."
        if unknown := [one for one in left if one not in measured]:
            yield f"Not measured, so not ruled out: {', '.join(one.title for one in unknown)}."
        if not others and not left and self.name in self.catalogue.by_id:
            yield "No other finding stands."

    def _is_measured(self, clauses: Collection[Clause]) -> bool:
        assert self.facts is not None
        names = self.facts.names
        return any(source in names for clause in clauses for source in sources_of(clause.decisive.signals[0]))

    def _remedy(self) -> Remedy | None:
        if self.name not in self.catalogue.by_id:
            return None
        if self.facts is None:
            return remedy(self.name, framework=None, config={}, last_good_step=None, has_ended=False)
        found, judgement = self.facts.found(self.name), self.facts.judgement
        if found is None or judgement is None:
            return None
        last_good = judgement.last_good if found is judgement.lead else found.last_good
        return remedy_of(
            found.remedy,
            self.facts.run,
            last_good_step=None if last_good is None else last_good.step,
            has_ended=self.facts.run.state.ended,
        )

    def _ends_when(self) -> str:
        """Return when the finding that stands ends: the opposite of what decided, at the relaxed limit."""
        found = None if self.facts is None else self.facts.found(self.name)
        clause = None if found is None else self.catalogue.by_key.get(f"{self.name}.{found.clause}")
        if clause is None:
            return "It ends once its condition holds no more; limits are relaxed by a fifth until then." * (
                self.name in self.catalogue.by_id
            )
        decisive = clause.decisive
        if decisive.measure in OF_TRUTH or decisive.transform in WITHOUT_VALUE:
            return "It ends once every value is a number again." * (decisive.transform in WITHOUT_VALUE)
        over = replace(decisive, side=OPPOSITE[decisive.side], limit=decisive.relaxed)
        return f"It ends when {comparison_words(over)}."

    def _stage(
        self,
        stage: Stage,
        lines: Collection[str],
        more_commands: tuple[str, ...] = (),
        *,
        options: tuple[str, ...] = (),
        words: str = "",
    ) -> RunbookStageInfo:
        values = self._values(words)
        commands = (*runbooks_file().commands[stage.replace(" ", "_")], *more_commands)
        filled = (_filled(one, values) for one in commands)
        url = self.facts.url if self.facts is not None else ""
        written = (f"{one} --url {shlex.quote(url)}" if url else one for one in filled if one)
        return RunbookStageInfo(
            stage=stage, lines=tuple(line for line in lines if line), options=options, commands=tuple(written)
        )

    def _values(self, words: str) -> dict[str, str | None]:
        signals = " ".join(self._signals()) or None
        if self.facts is None:
            return {"run": "PROJECT/RUN", "signals": signals, "words": "'WHAT YOU CHANGED'"} | {
                name: name.upper() for name in ("first", "last", "step")
            }
        run, judgement = self.facts.run, self.facts.judgement
        newest = run.last_step
        found = self.facts.found(self.name)
        since = self.facts.since_step if self.facts.since_step is not None else newest
        good = found.last_good if found is not None else None
        begin = since if good is None else good.step
        title = found.title if found is not None else title_of_rule(self.name)
        return {
            "run": shlex.quote(str(run.key)),
            "signals": signals if judgement is not None else None,
            "words": shlex.quote(f"{title}: {words}"[:MAX_WORDS]) if words else None,
            "first": None if begin is None else str(max(begin - AROUND, 0)),
            "last": None if newest is None else str(newest),
            "step": None if newest is None else str(newest),
        }

    def _signals(self) -> list[str]:
        """Return the signals that it rests on: of a run those that it has, by their full names."""
        spec = self.catalogue.by_id.get(self.name)
        if self.facts is None:
            return [_stored_name(spec.chart)] if spec is not None else self._of_rule()
        found = self.facts.found(self.name)
        wanted = self._of_rule() if found is None else [found.chart, *(one.signal for one in found.evidence)]
        full = (next((name for name in (one, *sources_of(one)) if name in self.facts.names), None) for one in wanted)
        return list(dict.fromkeys(shlex.quote(name) for name in full if name is not None))

    def _of_rule(self) -> list[str]:
        if self.rule is None or not self.rule.reads_batches:
            return []
        return list(dict.fromkeys(part.signal for part in comparisons_of(self.rule.when)))


def _stored_name(name: str) -> str:
    """Return the full name under which a signal of a clause is stored, of the pair of engines where it has pairs."""
    return next((source for source in sources_of(name) if source in SIGNALS), name)


def _filled(command: str, values: Mapping[str, str | None]) -> str:
    """Return a command with its values; empty where one of them is not known."""
    needed = {name: value for name, value in values.items() if f"{{{name}}}" in command}
    return "" if None in needed.values() else command.format(**needed)


def answers_of(run: Run, *, cause: str, sends_tokens: bool) -> AnswersInfo | None:
    """Return how to read the worst answers of a run; None of an imported log, which has no trainer.

    Args: cause: of its problem; sends_tokens: by log_batch.
    """
    if is_imported(run.config):
        return None
    book = runbooks_file()
    entry = book.entries.get(cause, NO_ENTRY)
    launch: Any = run.config.get("launch")
    folder, host = config_value(run.config, "launch.record_dir"), config_value(run.config, "launch.host")
    where = f" on {host}" if host else ""
    if run.recorded:
        kept = run.recorded[-1]
        values = {"first": str(kept.first), "last": str(kept.last), "host": where}
        command = book.commands["kept_answers"][0]
        words = book.answers["kept"].format(**values)
        command = command.format(folder=shlex.quote(kept.folder), worst_by=entry.worst_by, **values)
        return AnswersInfo(words=words, command=command, are_recorded=True)
    if isinstance(launch, Mapping) and folder:
        of_run = f"{str(folder).rstrip('/')}/{run.key.project}/{run.key.run}"
        words = book.answers["running"].format(steps=launch.get("record_steps", "newest"), host=where)
        command = book.commands["answers"][0].format(folder=shlex.quote(of_run), worst_by=entry.worst_by)
        return AnswersInfo(words=words, command=command, are_recorded=True)
    words = book.answers["unrecorded" if sends_tokens else "scalars"]
    return AnswersInfo(words=words, command=book.commands["record"][0], are_recorded=False)
