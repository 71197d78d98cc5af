"""Simulates the rows of a run, and keeps them as one compressed file of JSON Lines."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trmon_research.language_like.courses import LENGTH_SPREAD, SHORTEST, Course, course_of
from trmon_research.language_like.faults import FAULTS, Truth
from trmon_research.language_like.plans import Plan
from trmon_research.language_like.policies import GARBAGE_NATS, Engine, Text, Update, sample
from trmon_research.language_like.rewards import chances, mean_reward, rewards_of
from trmon_research.language_like.tokens import Logged, corrupt, signals_of

CACHE = Path("build/language-like")
PROMPT_LENGTH_SD = 0.35
"""Of the logarithm of a prompt's median length; the rest of the spread is within a prompt."""
EVALUATE_EVERY = 10
DIGITS = 10
LOG_NAMES = ("reward_mean", "reward_std", "response_length_mean", "length_limit_share", "zero_variance_groups")
"""The batch's signals that a trainer's log has."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated run: its plan, the truth (None: healthy) and its rows in the form of the files."""

    plan: Plan
    truth: Truth | None
    course: Course

    @classmethod
    def of(cls, plan: Plan) -> Simulated:
        """Return the run of a plan, before its rows are made."""
        rng = plan.generator()
        course = course_of(plan.traits, rng)
        truth = None if plan.fault is None else FAULTS[plan.fault](course, plan.onset or 0, rng)
        return cls(plan, truth, course)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows: attempt, step, values, on the first line config, and note where a change was declared."""
        rng = np.random.default_rng([self.plan.seed, self.plan.index, 2])
        for row in range(len(self.course)):
            line: dict[str, Any] = {
                "attempt": int(self.course.attempt[row]),
                "step": int(self.course.step[row]),
                "values": {name: _rounded(value) for name, value in _values(self.course, row, rng).items()},
            }
            if row == 0:
                line["config"] = self.plan.traits.config
            if row in self.course.notes:
                line["note"] = self.course.notes[row]
            yield line

    def manifest(self) -> dict[str, Any]:
        """Return the run's ground truth; it depends on the seed alone."""
        truth = self.truth
        return {
            "name": self.plan.name,
            "seed": self.plan.seed,
            "rows": len(self.course),
            "fault": self.plan.fault,
            "onset": truth and truth.onset,
            "onset_until": truth and truth.until,
            "dead_from_start": bool(truth and truth.dead_from_start),
            "accept": list(truth.accept) if truth else [],
            "view": self.plan.traits.view,
            "engine": self.plan.traits.engine,
            "reward": self.plan.traits.reward,
        }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _values(course: Course, row: int, rng: np.random.Generator) -> dict[str, float]:
    traits = course.traits
    groups = traits.groups
    group_ids = np.repeat(np.arange(groups[0]), groups[1])
    skill = course.skill[row] + course.topic[row]
    progress = course.step[row] / len(course)
    drawn = course.length[row] * np.exp(
        PROMPT_LENGTH_SD * rng.standard_normal(groups[0])[group_ids]
        + math.sqrt(LENGTH_SPREAD**2 - PROMPT_LENGTH_SD**2) * rng.standard_normal(len(group_ids))
    )
    shortest = min(SHORTEST, int(course.length[row]))
    lengths = np.clip(drawn, shortest, course.limit).astype(int)
    truncated = drawn >= course.limit
    rewards = rewards_of(rng, traits.reward, chances(rng, skill, groups=groups), truncated, progress=progress)
    if course.constant_reward[row]:
        rewards = np.full(len(rewards), -1.0 if traits.reward == "sign" else 0.0)
    centred = rewards.reshape(groups) - rewards.reshape(groups).mean(1, keepdims=True)
    spread = centred.std(1)
    labels = {"rewards": rewards, "group_ids": group_ids, "truncated": truncated}
    entropy = _expected_entropy(course, row) * math.exp(0.03 * rng.standard_normal())
    if traits.view == "log":
        found = signals_of(None, lengths, **labels)
        values = {name: found[name] for name in LOG_NAMES}
    else:
        logged, entropy = _logged(course, row, lengths, rng)
        labels["advantages"] = (centred / (spread[:, None] + 1e-6)).ravel()
        values = signals_of(logged, lengths, **labels, **_versions(course, row, len(lengths)))
        values = {name: value for name, value in values.items() if not math.isnan(value)}
    values |= {"reward_min": float(rewards.min()), "reward_max": float(rewards.max())}
    values |= _trainer(course, row, rng, signal=float((spread > 1e-9).mean()), entropy=entropy)
    if traits.evaluates and row % EVALUATE_EVERY == 0:
        values["eval_reward"] = _evaluation(course, row, progress)
    return values


def _logged(course: Course, row: int, lengths: Any, rng: np.random.Generator) -> tuple[Logged, float]:
    """Return the token arrays of a row as the trainer logs them, and the mean entropy of its policy."""
    # The rows whose updates the engine has not got yet.
    missing = slice(max(0, row - int(course.lag[row])), row)
    engine = Engine(
        logit_sd=course.logit_sd[row],
        flip_share=course.flip_share[row],
        flip_sd=course.flip_sd[row],
        other_share=course.other_share[row],
        # The weights' changes are independent from version to version, but for what makes the policy surer.
        weights_sd=float(np.sqrt((course.weights_sd[missing] ** 2).sum())),
        sharper=min(0.8, float(course.sharper[missing].sum())),
        temperature=course.temperature[row],
        top_p=course.top_p[row],
        sequence_sd=course.sequence_sd[row],
    )
    text = Text(course.uncertain[row], course.entropy[row], course.garbage[row])
    update = Update(course.update_sd[row], course.sharper[row])
    tokens = sample(rng, text, engine, update, sequence_of=np.repeat(np.arange(len(lengths)), lengths))
    logged = Logged.of(tokens, lengths, three=course.traits.view == "three")
    if how := course.corruption[row]:
        corrupt(logged, how, share=course.corrupted_share, rng=rng)
    if course.broken[row] and course.broken[row - 1]:
        # The weights of the update before are NaN, and so is what the trainer makes of them.
        logged.old[:] = math.nan
        logged.pi = None if logged.pi is None else logged.old
    return logged, tokens.entropy


def _versions(course: Course, row: int, n: int) -> dict[str, Any]:
    """Return the versions that the trainer states: the engine's weights are `lag` older than pi_old's."""
    if not course.shows_versions:
        return {}
    now = int(course.step[row]) + 1000
    return {
        "versions": np.full(n, now - int(course.lag[row])),
        "trainer_version": now,
        "old_version": now,
    }


def _trainer(course: Course, row: int, rng: np.random.Generator, *, signal: float, entropy: float) -> dict[str, float]:
    """Return the scalars that the trainer logs. Args: signal: the share of groups whose rewards differ."""
    broken = bool(course.broken[row])
    return {
        "grad_norm": math.nan if broken else float(course.grad[row] * math.sqrt(signal)),
        "loss": math.nan if broken else 0.01 * signal * float(rng.standard_normal()),
        "entropy": math.nan if broken else entropy,
        "lr": float(course.lr[row]),
        "reference_kl": float(course.reference_kl[row]),
        "step_seconds": float(course.seconds[row]),
    }


MEAN_UNCERTAIN_ENTROPY = 0.65


def _expected_entropy(course: Course, row: int) -> float:
    """Return the entropy that tokens would show, in nats."""
    certain = 1 - course.garbage[row]
    text = course.uncertain[row] * MEAN_UNCERTAIN_ENTROPY * course.entropy[row]
    return float(certain * text + sum(GARBAGE_NATS) / 2 * course.garbage[row])


def _evaluation(course: Course, row: int, progress: float) -> float:
    """Return the mean reward on 256 fixed prompts."""
    rng = np.random.default_rng([row, 3])
    skill = course.skill[row] + course.evaluation[row]
    fixed = chances(np.random.default_rng(4), skill, groups=(256, 1))
    return mean_reward(course.traits.reward, fixed, progress=progress) + 0.01 * float(rng.standard_normal())


def path_of(plan: Plan, folder: Path = CACHE) -> Path:
    """Return the file of a run."""
    return folder / f"seed-{plan.seed}" / f"{plan.name}.jsonl.gz"


def store(plan: Plan, folder: Path = CACHE) -> Path:
    """Simulate a run and write its rows; the file appears only when it is whole."""
    path = path_of(plan, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in Simulated.of(plan).rows())
    partial = path.with_suffix(".partial")
    partial.write_bytes(gzip.compress(lines.encode(), 6, mtime=0))
    return partial.replace(path)


def rows(run: Path | Plan, folder: Path = CACHE) -> Iterator[dict[str, Any]]:
    """Yield the stored rows of a run, which is simulated first where its file is missing."""
    path = run if isinstance(run, Path) else path_of(run, folder)
    if isinstance(run, Plan) and not path.exists():
        store(run, folder)
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)
