"""What goes wrong in a run: each fault changes the course from its onset on and states the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trmon_research.language_like.courses import LONGEST, Course, ramp

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a fault began, and which findings name it.

    `until` is `onset` for a step; for a ramp, the row at which a fifth of its height is reached: a reader may put its
    beginning at any row between them. `accept` holds the first causes that are right.
    """

    onset: int
    until: int
    accept: tuple[str, ...]

    @property
    def dead_from_start(self) -> bool:
        """Whether no row is before the fault."""
        return self.onset == 0


Fault = Callable[[Course, int, Rng], Truth]

CORRUPT = ("corrupt_logprobs",)
DRIFT = ("engine_mismatch", "variance_blowup", "moderate_drift")
FIFTH = 5


def _step(at: int, *accept: str) -> Truth:
    return Truth(at, at, accept)


def _ramp(at: int, rows: int, *accept: str) -> Truth:
    return Truth(at, at + rows // FIFTH, accept)


def _harms(course: Course, at: int, *, rows: int, by: float) -> None:
    """Let the skill fall by `by` log-odds from a row on, within `rows`."""
    course.skill = course.skill - by * ramp(len(course), at, rows)


def sampler_frozen(course: Course, at: int, rng: Rng) -> Truth:
    """The engine keeps the weights of the onset: the lag grows by one in each row."""
    rows = np.arange(len(course))
    course.lag = np.where(rows > at, rows - at, course.lag)
    _harms(course, at + 60, rows=60, by=1.5)
    return _step(at, "stale_rollouts")


def sampler_frozen_unknown(course: Course, at: int, rng: Rng) -> Truth:
    """The same where no versions are logged: only the distance grows."""
    course.shows_versions = False
    truth = sampler_frozen(course, at, rng)
    # The distance leaves its noise only some versions after the onset.
    return Truth(at, at + 20, (*truth.accept, *DRIFT))


def lag_growing(course: Course, at: int, rng: Rng) -> Truth:
    """Rollouts wait in a queue that grows: another version behind every four rows, to 25."""
    rows = np.arange(len(course))
    course.lag = course.lag + np.clip((rows - at) // 4 + 1, 0, 25) * (rows >= at)
    course.weights_sd = course.weights_sd * 2
    return Truth(at, at + 8, ("stale_rollouts",))


def _corruption(how: str, share: float = 0.0) -> Fault:
    def corrupted(course: Course, at: int, rng: Rng) -> Truth:
        course.corruption[at:] = how
        course.corrupted_share = share
        if share != 0.02:
            _harms(course, at + 30, rows=40, by=1.5)
        return _step(at, *CORRUPT)

    return corrupted


def mask_of_ones(course: Course, at: int, rng: Rng) -> Truth:
    """The mask counts padding, where the trainer has zeros as well or log-probs of its own."""
    return _corruption(str(rng.choice(["mask", "mask_mu"])))(course, at, rng)


def other_order(course: Course, at: int, rng: Rng) -> Truth:
    """The engine's log-probs are of the batch's sequences in another order, padded or packed."""
    return _corruption(str(rng.choice(["order", "packed_order"])))(course, at, rng)


def _temperature(value: float) -> Fault:
    def heated(course: Course, at: int, rng: Rng) -> Truth:
        """The engine's log-probs are of logits divided by a temperature, the trainer's are not."""
        course.temperature[at:] = value
        return _step(at, "temperature")

    return heated


def nucleus(course: Course, at: int, rng: Rng) -> Truth:
    """The engine samples with top-p 0.9 and logs the renormalised probabilities."""
    course.top_p[at:] = 0.9
    return _step(at, "support_shift")


def engine_noise(course: Course, at: int, rng: Rng) -> Truth:
    """The engine's numerical noise grows tenfold."""
    rows = int(rng.integers(30, 60))
    course.logit_sd = np.maximum(course.logit_sd, 0.07) * 10 ** ramp(len(course), at, rows)
    _harms(course, at + rows + 20, rows=50, by=1.5)
    return Truth(at, at + rows // 3, DRIFT)


def router_noise(course: Course, at: int, rng: Rng) -> Truth:
    """A third of the tokens go to other experts, far from the right ones."""
    course.flip_share[at:] = 0.35
    course.flip_sd[at:] = 2.2
    return _step(at, "engine_mismatch", "moe_routing")


def wrong_weights(course: Course, at: int, rng: Rng) -> Truth:
    """The engine serves another checkpoint: the tokens it samples surprise the trainer."""
    course.other_share[at:] = 0.5
    _harms(course, at + 10, rows=20, by=2.0)
    return _step(at, "wrong_policy")


def learning_rate(course: Course, at: int, rng: Rng) -> Truth:
    """The learning rate is thirty times too large: updates and gradients jump, the policy is damaged."""
    course.lr[at:] *= 30
    course.update_sd[at:] = course.update_sd[at:] * 30
    course.grad[at:] *= np.exp(rng.normal(2.7, 0.5, len(course) - at))
    course.entropy = course.entropy * 1.7 ** ramp(len(course), at, 10)
    course.garbage = course.garbage + 0.05 * ramp(len(course), at + 5, 20)
    _harms(course, at + 3, rows=20, by=4.0)
    return _step(at, "step_too_large")


def entropy_explosion(course: Course, at: int, rng: Rng) -> Truth:
    """The policy writes more and more garbage; the reward follows."""
    rows = int(rng.integers(25, 45))
    up = ramp(len(course), at, rows)
    course.garbage = 0.45 * up**1.5
    course.entropy = course.entropy * 2.0**up
    _harms(course, at + rows // 3, rows=rows, by=5.0)
    return _ramp(at, rows, "entropy_explosion")


def entropy_collapse(course: Course, at: int, rng: Rng) -> Truth:
    """The policy becomes deterministic and repeats one answer that is rarely right."""
    rows = int(rng.integers(25, 45))
    down = ramp(len(course), at, rows)
    course.entropy = course.entropy * 0.1**down
    course.uncertain = course.uncertain * 0.12**down
    course.grad = course.grad * 0.3**down
    _harms(course, at + rows // 3, rows=rows, by=3.5)
    return _ramp(at, rows, "entropy_collapse")


def instability(course: Course, at: int, rng: Rng) -> Truth:
    """Gradients spike in several rows, then the reward collapses within some twenty."""
    spikes = at + rng.choice(15, 6, replace=False)
    course.grad[spikes] *= rng.uniform(15, 60, len(spikes))
    course.update_sd[at : at + 25] *= 6
    course.entropy = course.entropy * 2.2 ** ramp(len(course), at + 4, 12)
    course.garbage = course.garbage + 0.1 * ramp(len(course), at + 6, 15)
    _harms(course, at + 4, rows=15, by=6.0)
    return Truth(at, at + 6, ("step_too_large", "reward_collapse"))


def slow_decline(course: Course, at: int, rng: Rng) -> Truth:
    """The reward falls slowly below where it began."""
    rows = len(course) - at - 20
    _harms(course, at, rows=rows, by=4.0)
    return _ramp(at, rows, "reward_decline", "reward_collapse")


def length_surge(course: Course, at: int, rng: Rng) -> Truth:
    """Responses grow without any gain, away from the reference."""
    rows = int(rng.integers(40, 70))
    up = ramp(len(course), at, rows)
    course.length = course.length * 2.6**up
    course.reference_kl = course.reference_kl * 4.0**up + 0.3 * up
    course.limit = min(LONGEST, int(2.4 * course.limit))
    course.skill = np.where(np.arange(len(course)) < at, course.skill, course.skill[at])
    _harms(course, at + rows // 2, rows=rows, by=1.0)
    return _ramp(at, rows, "length_surge")


def length_collapse(course: Course, at: int, rng: Rng) -> Truth:
    """Responses shrink to a quarter, most of them wrong."""
    rows = int(rng.integers(4, 25))
    down = ramp(len(course), at, rows)
    course.length = np.maximum(course.length * 0.2**down, 12.0)
    _harms(course, at, rows=rows, by=2.0)
    return _ramp(at, rows, "length_collapse")


def cut_at_limit(course: Course, at: int, rng: Rng) -> Truth:
    """Most responses reach the limit, from the start or as they grow without end."""
    rows = 0 if at == 0 else 50
    up = ramp(len(course), at, rows)
    wanted = course.limit * 1.6
    course.length = course.length ** (1 - up) * wanted**up
    # A share of 0.2 is ill, and the lengths have a wide spread: that is where a third of the way is gone.
    return Truth(at, at + rows // 2, ("cut_at_limit",))


def dead_reward(course: Course, at: int, rng: Rng) -> Truth:
    """No response is ever right: no group has a difference to learn from."""
    course.skill = np.where(np.arange(len(course)) >= at, -40.0, course.skill)
    return _step(at, "no_learning_signal")


def verifier_breaks(course: Course, at: int, rng: Rng) -> Truth:
    """From a row on, the verifier gives every response its lowest reward."""
    course.constant_reward[at:] = True
    return _step(at, "no_learning_signal", "reward_collapse")


def nan_gradient(course: Course, at: int, rng: Rng) -> Truth:
    """Loss and gradient are NaN, and so are the weights: what is sampled is never right again."""
    course.broken[at:] = True
    course.skill[at + 1 :] = -8.0
    return _step(at, "not_a_number")


def drift_with_variance(course: Course, at: int, rng: Rng) -> Truth:
    """Some sequences drift ever farther from the trainer: k3 and the spread over sequences grow together."""
    rows = int(rng.integers(50, 80))
    up = ramp(len(course), at, rows)
    course.sequence_sd = 0.3 * up
    course.logit_sd = course.logit_sd * 12.0**up
    _harms(course, at + rows, rows=40, by=1.5)
    return _ramp(at, rows, *DRIFT)


def overoptimisation(course: Course, at: int, rng: Rng) -> Truth:
    """The training reward goes on to rise while evaluations fall."""
    rows = len(course) - at
    course.evaluation = -4.0 * ramp(len(course), at, rows)
    course.skill = course.skill + 1.5 * ramp(len(course), at, rows)
    return Truth(at, at + rows // 3, ("overoptimisation",))


FAULTS: dict[str, Fault] = {
    "sampler_frozen": sampler_frozen,
    "sampler_frozen_unknown": sampler_frozen_unknown,
    "lag_growing": lag_growing,
    "shifted": _corruption("shift"),
    "other_order": other_order,
    "mask_of_ones": mask_of_ones,
    "zeros_2": _corruption("zeros", 0.02),
    "zeros_10": _corruption("zeros", 0.1),
    "dropped_end": _corruption("dropped_end", 0.4),
    "sign": _corruption("sign"),
    "log2": _corruption("log2"),
    "temperature_0.8": _temperature(0.8),
    "temperature_1.2": _temperature(1.2),
    "top_p": nucleus,
    "engine_noise": engine_noise,
    "router_noise": router_noise,
    "wrong_weights": wrong_weights,
    "learning_rate": learning_rate,
    "entropy_explosion": entropy_explosion,
    "entropy_collapse": entropy_collapse,
    "instability": instability,
    "slow_decline": slow_decline,
    "length_surge": length_surge,
    "length_collapse": length_collapse,
    "cut_at_limit": cut_at_limit,
    "dead_reward": dead_reward,
    "verifier_breaks": verifier_breaks,
    "nan_gradient": nan_gradient,
    "drift_with_variance": drift_with_variance,
    "overoptimisation": overoptimisation,
}
"""The faults by name; those of `CONFIGURED` may be there from the first row."""

CONFIGURED = frozenset(
    (
        *("shifted", "other_order", "mask_of_ones", "zeros_2", "zeros_10", "dropped_end"),
        *("sign", "log2", "temperature_0.8", "temperature_1.2", "top_p", "router_noise", "wrong_weights"),
        "cut_at_limit",
    )
)
ALWAYS_FROM_START = frozenset(("dead_reward",))
