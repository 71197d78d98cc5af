"""The faults that a lab run injects, and their size at a given severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

HARMLESS_BITS = 8
HARMFUL_BITS = 3
LARGEST_LAG = 16
LARGEST_ROUTER_NOISE = 3.0
SMALLEST_TOP_P = 0.7
LARGEST_LEARNING_RATE = 4e-3
ROLLOUT_TEMPERATURE = 0.7
LARGEST_ENTROPY_BONUS = 1.0
NAN_SHARE = 0.05
LONGEST_RESPONSE = 16
SHORTEST_LIMIT = 4


class Injection(Enum):
    """The kinds of faults, one per run; each reproduces a failure seen in production runs."""

    QUANTISE = "quantise"
    """The rollout engine rounds its weights to fewer and fewer bits per tensor."""
    STALE = "stale"
    """The rollout engine's weights lag further and further behind the learner's."""
    ROUTER = "router"
    """The rollout engine's routing is noisy: its tokens meet other experts than in training."""
    PAD = "pad"
    """The rollout engine loses the log-probs at the ends of its responses and pads them with 0.0."""
    SUPPORT = "support"
    """The rollout engine samples from a nucleus and reports the renormalised log-probs."""
    LR = "lr"
    """The engines agree; the learning rate is too large."""
    TEMPERATURE = "temperature"
    """The rollout engine samples, and reports log-probs, at another temperature than the trainer scores at."""
    REWARD = "reward"
    """The engines agree; the rewards of more and more groups reach the learner with the wrong sign."""
    NAN = "nan"
    """The engines agree; the verifier returns NaN for some responses."""
    ENTROPY = "entropy"
    """The engines agree; the entropy bonus of the loss is too large."""
    LENGTH = "length"
    """The engines agree; the rollout engine's limit of tokens cuts more and more responses."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An injection at a step: `severity` 0 means no effect, 1 the full effect.

    `rollout_temperature` is that of the rollout engine at full severity of the injection `temperature`.
    """

    injection: Injection | None = None
    severity: float = 0.0
    rollout_temperature: float = ROLLOUT_TEMPERATURE

    @property
    def weight_bits(self) -> int | None:
        """Bits per weight in the rollout engine; None is its healthy bfloat16."""
        if not self._is(Injection.QUANTISE):
            return None
        return round(HARMLESS_BITS - (HARMLESS_BITS - HARMFUL_BITS) * self.severity)

    @property
    def lag(self) -> int:
        """How many versions the rollout engine's weights are behind the learner's."""
        return max(1, round(LARGEST_LAG * self.severity)) if self._is(Injection.STALE) else 0

    @property
    def router_noise(self) -> float:
        """Standard deviation of the noise on the rollout engine's router logits."""
        return LARGEST_ROUTER_NOISE * self.severity if self._is(Injection.ROUTER) else 0.0

    @property
    def padded_share(self) -> float:
        """Share of responses that lose the log-probs of their last tokens."""
        return self.severity if self._is(Injection.PAD) else 0.0

    @property
    def top_p(self) -> float:
        """The probability mass of the nucleus that the rollout engine samples from; 1 includes every symbol."""
        return 1.0 - (1.0 - SMALLEST_TOP_P) * self.severity if self._is(Injection.SUPPORT) else 1.0

    @property
    def temperature(self) -> float:
        """The temperature that the rollout engine samples at; the trainer's is 1."""
        return 1.0 + (self.rollout_temperature - 1.0) * self.severity if self._is(Injection.TEMPERATURE) else 1.0

    @property
    def negated_share(self) -> float:
        """Share of groups whose rewards reach the learner with the wrong sign."""
        return self.severity if self._is(Injection.REWARD) else 0.0

    @property
    def nan_share(self) -> float:
        """Share of responses whose reward is NaN."""
        return NAN_SHARE * self.severity if self._is(Injection.NAN) else 0.0

    @property
    def entropy_bonus(self) -> float:
        """Coefficient of the policy's entropy in the loss."""
        return LARGEST_ENTROPY_BONUS * self.severity if self._is(Injection.ENTROPY) else 0.0

    @property
    def token_limit(self) -> int | None:
        """Longest response in tokens; None is no limit."""
        if not self._is(Injection.LENGTH):
            return None
        return round(LONGEST_RESPONSE - (LONGEST_RESPONSE - SHORTEST_LIMIT) * self.severity)

    def learning_rate(self, healthy: float) -> float:
        """Return the learner's learning rate, given the healthy one."""
        if not self._is(Injection.LR):
            return healthy
        return healthy + (LARGEST_LEARNING_RATE - healthy) * self.severity

    def _is(self, injection: Injection) -> bool:
        return self.injection is injection and self.severity > 0
