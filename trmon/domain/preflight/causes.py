"""The causes that a preflight names, each with the finding it belongs to and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.diagnosis import REMEDIES, Evidence, Finding, RenderedRemedy


class PreflightCause(Enum):
    """Why two engines with equal weights do not give the same tokens the same log-probs."""

    RETOKENISED = "retokenised"
    PADDING = "padding"
    SHIFTED = "shifted"
    MISSING = "missing"
    ZEROS = "zeros"
    CORRUPT = "corrupt"
    SUPPORT = "support"
    TEMPERATURE = "temperature"
    ENGINES = "engines"

    @property
    def finding(self) -> Finding:
        """The finding that this cause becomes in a run."""
        return _FINDINGS.get(self, Finding.CORRUPT_LOGPROBS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause that was found: in words, with its evidence, what to do first, and the remedy of its finding."""

    cause: PreflightCause
    detail: str
    evidence: tuple[Evidence, ...] = ()
    remedy: RenderedRemedy

    @classmethod
    def of(cls, cause: PreflightCause, detail: str, evidence: tuple[Evidence, ...] = ()) -> FoundCause:
        """Return a cause with the remedy of its finding."""
        return cls(cause=cause, detail=detail, evidence=evidence, remedy=REMEDIES[cause.finding].render())

    @property
    def fix(self) -> str:
        """What to change first: that of the cause itself where it is more specific than its finding."""
        return _FIXES.get(self.cause, self.remedy.fix)


_FINDINGS = {
    PreflightCause.SUPPORT: Finding.SUPPORT_SHIFT,
    PreflightCause.TEMPERATURE: Finding.TEMPERATURE,
    PreflightCause.ENGINES: Finding.ENGINE_MISMATCH,
}
_FIXES = {
    PreflightCause.RETOKENISED: "Pass the rollout's token ids to the trainer instead of its text, and add special "
    "tokens once.",
    PreflightCause.PADDING: "Use one mask on both sides: the same padding side, and the end-of-sequence token counted "
    "by both or by neither.",
    PreflightCause.SHIFTED: "Align the log-probs: the logits at position t - 1 give the log-prob of the token at t.",
    PreflightCause.MISSING: "Have the engine return a log-prob for every sampled token, as a natural logarithm.",
    PreflightCause.ZEROS: "Fill no gaps with 0.0, which says that a token was certain: mask these positions, or have "
    "the engine return their log-probs.",
}
