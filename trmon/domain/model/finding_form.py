"""The forms of findings whose signal can leave its range on either side, and which need opposite remedies."""

from __future__ import annotations

from enum import Enum

from trmon.domain.model.finding import Finding


class FindingForm(Enum):
    """On which side a finding left its range; the values are the built-in rules that find each form."""

    ENTROPY_COLLAPSE = "entropy_collapse"
    ENTROPY_EXPLOSION = "entropy_explosion"

    @property
    def finding(self) -> Finding:
        """The finding that it is a form of."""
        return Finding.ENTROPY

    @property
    def title(self) -> str:
        """The title of the form, which stands for that of the finding."""
        return self.value.replace("_", " ")

    @property
    def meaning(self) -> str:
        """What the form means, in one plain sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    FindingForm.ENTROPY_COLLAPSE: "The policy's entropy fell far below its start: it hardly explores any more and "
    "repeats the same answers.",
    FindingForm.ENTROPY_EXPLOSION: "The policy's entropy rises above its usual range: its answers become more and more "
    "random.",
}


def form_of_rule(finding: Finding | None, rule: str) -> FindingForm | None:
    """Return the form of a finding that a rule finds; None if the finding has no forms or another rule found it."""
    return next((form for form in FindingForm if form.value == rule and form.finding is finding), None)


def title_of(finding: Finding, form: FindingForm | None) -> str:
    """Return the title of a finding, that of its form where it is known."""
    return finding.title if form is None else form.title


def meaning_of(finding: Finding, form: FindingForm | None) -> str | None:
    """Return what a finding means, or its form where it is known; None for `healthy` and `unknown`."""
    return finding.meaning if form is None else form.meaning
