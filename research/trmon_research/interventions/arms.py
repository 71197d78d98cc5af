"""The arms of a pair, by name, and the cures that a diagnosis chooses from."""

from __future__ import annotations

from collections.abc import Mapping

from trmon.domain.finding import Finding
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
"""The arms that are the same whatever the diagnosis says."""
ARMS = (*FIXED_ARMS, DIAGNOSED)

SMALL_STEPS = intervention(
    Action.ROLL_BACK, rate=0.2, reason="nothing wrong between the engines: the damage is undone, and steps are small"
)
"""The cure where no cause, or one of training itself, was found."""
ENGINES = intervention(
    Action.RESYNCHRONISE, Action.MASK, reason="the engines are aligned; what still differs leaves the loss"
)

CURES: Mapping[Finding, Intervention] = {
    Finding.NOT_A_NUMBER: SMALL_STEPS,
    Finding.CORRUPT_LOGPROBS: intervention(
        Action.OWN_REFERENCE, reason="no correction rescues corrupt log-probs: they stay out of the loss"
    ),
    Finding.TEMPERATURE: intervention(Action.SAMPLE_AS_SCORED, reason="one temperature for sampling and scoring"),
    Finding.SUPPORT_SHIFT: intervention(Action.SAMPLE_AS_SCORED, reason="score the distribution that is sampled"),
    Finding.STALENESS: intervention(
        Action.RESYNCHRONISE, rate=0.5, reason="no lag; a smaller rate makes what the run has learned of it smaller"
    ),
    Finding.VERSION_SPAN: intervention(
        Action.RESYNCHRONISE, rate=0.5, reason="responses of one version of the weights; the rate as for staleness"
    ),
    Finding.MOE_ROUTING: intervention(
        Action.RESYNCHRONISE, Action.MASK, Action.REPLAY_ROUTING, reason="as for the engines, with routing replay (R3)"
    ),
    Finding.ENGINE_MISMATCH: ENGINES,
    Finding.STEP_TOO_LARGE: SMALL_STEPS,
    Finding.CLIP_SATURATION: intervention(
        Action.ROLL_BACK, Action.ONE_EPOCH, rate=0.2, reason="less training on each rollout, from before the damage"
    ),
    Finding.VARIANCE_BLOWUP: ENGINES,
    Finding.MODERATE_DRIFT: ENGINES,
    Finding.ENTROPY: intervention(
        Action.ROLL_BACK, Action.PLAIN_OBJECTIVE, rate=0.2, reason="the coefficient that moves the entropy goes"
    ),
    Finding.LENGTH: intervention(
        Action.ROLL_BACK, Action.PLAIN_OBJECTIVE, rate=0.5, reason="the audited reward pays for no length"
    ),
    Finding.LENGTH_SURGE: intervention(
        Action.ROLL_BACK, Action.PLAIN_OBJECTIVE, rate=0.5, reason="half the rate, and the reward pays for no length"
    ),
    Finding.NO_LEARNING_SIGNAL: SMALL_STEPS,
    Finding.REWARD_COLLAPSE: SMALL_STEPS,
}
"""What an owner does about each finding when a collapse is predicted.

The remedies of `trmon.domain.diagnosis.remedies`, as far as the lab has their options, and stronger: a collapse is
near, so a rate is cut to a fifth where a remedy halves it (x 0.2 saved 8 of 11 runs in a pilot).
"""


def cure_of(finding: Finding | None) -> Intervention:
    """Return the intervention for the cause that a diagnosis names; None: it names none."""
    return SMALL_STEPS if finding is None else CURES[finding]
