"""The arms of a pair, by name, and the cures of the findings."""

from __future__ import annotations

from collections.abc import Mapping

from trmon_research.interventions.intervention import Action, Intervention, intervention

UNTOUCHED, PLACEBO, DIAGNOSED = "untouched", "placebo", "diagnosed"

FIXED_ARMS: Mapping[str, Intervention] = {
    UNTOUCHED: intervention(reason="what happens without an intervention"),
    PLACEBO: intervention(Action.RESEED, reason="what chance alone changes"),
    "lower_rate": intervention(rate=0.2, reason="the one change that helps without knowing the cause"),
    "mask": intervention(Action.MASK, reason="Trust Region Masking alone"),
    "resynchronise": intervention(Action.RESYNCHRONISE, reason="an engine like the trainer"),
    "roll_back": intervention(Action.ROLL_BACK, rate=0.5, reason="undo the damage, then smaller steps"),
}
"""The arms that are the same whatever finding leads."""
ARMS = (*FIXED_ARMS, DIAGNOSED)

SMALL_STEPS = intervention(
    Action.ROLL_BACK, rate=0.2, reason="nothing wrong between the engines: the damage is undone, and steps are small"
)
"""The cure where no cause, or one of training itself, was found."""
ENGINES = intervention(
    Action.RESYNCHRONISE, Action.MASK, reason="the engines are aligned; what still differs leaves the loss"
)

SAMPLING = intervention(Action.SAMPLE_AS_SCORED, reason="the distribution that is sampled is the one that is scored")
PLAIN = intervention(
    Action.ROLL_BACK, Action.PLAIN_OBJECTIVE, rate=0.2, reason="the coefficient that moves the entropy goes"
)
UNPAID = intervention(Action.ROLL_BACK, Action.PLAIN_OBJECTIVE, rate=0.5, reason="the reward pays for no length")

CURES: Mapping[str, Intervention] = {
    "not_a_number": SMALL_STEPS,
    "corrupt_logprobs": intervention(
        Action.OWN_REFERENCE, reason="no correction rescues corrupt log-probs: they stay out of the loss"
    ),
    "wrong_policy": intervention(
        Action.RESYNCHRONISE, Action.OWN_REFERENCE, reason="the trainer's weights, and no log-probs of others"
    ),
    "moe_routing": intervention(
        Action.RESYNCHRONISE, Action.MASK, Action.REPLAY_ROUTING, reason="as for the engines, with routing replay (R3)"
    ),
    "support_shift": SAMPLING,
    "temperature": SAMPLING,
    "stale_rollouts": intervention(
        Action.RESYNCHRONISE, Action.ONE_EPOCH, rate=0.5, reason="no lag, fewer updates a rollout, and smaller ones"
    ),
    "engine_mismatch": ENGINES,
    "step_too_large": SMALL_STEPS,
    "reference_kl": SMALL_STEPS,
    "cut_at_limit": UNPAID,
    "no_learning_signal": SMALL_STEPS,
    "length_hacking": UNPAID,
    "length_surge": UNPAID,
    "entropy_explosion": PLAIN,
    "entropy_collapse": PLAIN,
    "length_collapse": UNPAID,
    "clip_saturation": intervention(
        Action.ROLL_BACK, Action.ONE_EPOCH, rate=0.2, reason="less training on each rollout, from before the damage"
    ),
    "variance_blowup": ENGINES,
    "moderate_drift": ENGINES,
    "overoptimisation": UNPAID,
    "reward_collapse": SMALL_STEPS,
    "reward_decline": SMALL_STEPS,
    "collapse_risk": SMALL_STEPS,
}
"""What an owner does about each finding that warns or pages when a collapse is predicted.

The remedies of `trmon.domain.findings.remedies`, as far as the lab has their options, and stronger: a collapse is
near, so a rate is cut to a fifth where a remedy halves it (x 0.2 saved 8 of 11 runs in a pilot).
"""


def cure_of(finding: str | None) -> Intervention:
    """Return the intervention for the finding that leads; None: none does."""
    return SMALL_STEPS if finding is None else CURES[finding]
