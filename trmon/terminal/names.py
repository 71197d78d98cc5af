"""Names of runs, cut to a width without losing what tells them apart; `static/names.js` does the same in the page."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import accumulate, groupby

from trmon.terminal.text import ELLIPSIS, cut_middle

_PARTS = re.compile(r"[^-_/:]+[-_/:]*|[-_/:]+")
_DOUBLED = re.compile(f"{ELLIPSIS}+")
_LEAST_SAVED = 2
"""Characters that an ellipsis must save."""
PROJECT_SHARE = 3
"""A project may have this part of the room of a run's full name."""


def fold_names(
    names: Iterable[str], fits: Callable[[str], bool], split: Callable[[str], list[str]] = _PARTS.findall
) -> dict[str, str]:
    """Return each name as it is if all fit, else with ellipses for the parts, between separators, that tell nothing.

    First goes the prefix that all names share, then the longest other stretches in which a name differs from none that
    begins like it, then the middle. No two names are given the same text: one that would be is longer than what fits.
    """
    parts = {name: split(name) for name in names}
    if all(map(fits, parts)):
        return {name: name for name in parts}
    after: defaultdict[str, set[str]] = defaultdict(set)
    for of_name in parts.values():
        for begin, part in zip(accumulate(of_name, initial=""), [*of_name, ""], strict=True):
            after[begin].add(part)
    shown = {}
    for name, of_name in parts.items():
        tells = groupby(zip(accumulate(of_name, initial=""), of_name, strict=False), lambda at: len(after[at[0]]) > 1)
        silenced = _without_silent([(tell, "".join(part for _, part in some)) for tell, some in tells], fits)
        shown[name] = _cut(silenced, fits)
    alike = _alike(shown)
    if alike and split is not list:
        shown |= fold_names(alike, fits, list)
    return shown | {name: name for name in _alike(shown)}


def _alike(shown: Mapping[str, str]) -> list[str]:
    counts = Counter(shown.values())
    return [name for name, text in shown.items() if counts[text] > 1]


def _without_silent(stretches: list[tuple[bool, str]], fits: Callable[[str], bool]) -> str:
    """Return stretches, each with whether it tells the name from others, without what must go of the others."""
    texts = [text for _, text in stretches]
    silent = [i for i, (is_telling, text) in enumerate(stretches) if not is_telling and len(text) > _LEAST_SAVED]
    for i in sorted(silent, key=lambda i: (i > 0, -len(texts[i]), i)) if len(stretches) > 1 else ():
        if i > 0 and fits("".join(texts)):
            break
        kept = range(len(texts[i]) - _LEAST_SAVED if i > 0 else 0, -1, -1)
        fuller = (f"{texts[i][:n]}{ELLIPSIS}" for n in kept)
        texts[i] = next((text for text in fuller if fits("".join([*texts[:i], text, *texts[i + 1 :]]))), ELLIPSIS)
    return "".join(texts)


def _cut(text: str, fits: Callable[[str], bool]) -> str:
    """Return a text that fits; one whose end was left out already loses more of it, another one its middle."""
    is_open = text.find(ELLIPSIS) == len(text) - 1
    for width in range(len(text), 0, -1):
        cut = _DOUBLED.sub(ELLIPSIS, f"{text[: width - 1]}{ELLIPSIS}" if is_open else cut_middle(text, width))
        if fits(cut):
            return cut
    return text


def _is_within(width: int, text: str) -> bool:
    return len(text) <= width


@lru_cache(maxsize=4)
def fold_run_names(runs: tuple[tuple[str, str], ...], width: int) -> Mapping[tuple[str, str], str]:
    """Return `project/run` of each project and run in at most `width` characters, as far as they differ in them."""
    of_project: defaultdict[str, list[str]] = defaultdict(list)
    for project, run in runs:
        of_project[project].append(run)
    if all(len(f"{project}/{run}") <= width for project, names in of_project.items() for run in names):
        return {(project, run): f"{project}/{run}" for project, names in of_project.items() for run in names}
    projects = fold_names(of_project, partial(_is_within, width // PROJECT_SHARE))
    found = {}
    for project, names in of_project.items():
        room = width - len(projects[project]) - 1
        for run, text in fold_names(names, partial(_is_within, room)).items():
            found[project, run] = f"{projects[project]}/{text}"
    return found
