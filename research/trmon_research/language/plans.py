"""The 28 runs: what each trains, what is wrong with it and from which update on, and to which half it belongs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from trmon_research.language.task import Check

DATA = Path(__file__).parents[2] / "data" / "language"
Kind = Literal["dense", "moe"]
Precision = Literal["float32", "bfloat16", "int8"]

N_UPDATES, FAULT_AT = 140, 70
TEMPERATURE = 0.8
"""Of the trainer and of an engine without a fault: at 1 a fifth of what the models write parses, at 0.8 half."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong. Args: name, value: what `training.inject` does; at: the first update that has it; accept: the
    findings that are right as its first cause; shows_within: after so many updates it shows at the latest, if it
    works by what the policy learns."""

    name: str
    value: float
    accept: frozenset[str]
    at: int = FAULT_AT
    shows_within: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Args: n_updates_a_rollout: optimizer steps on one rollout; restarts_at: the update after which the
    process ends, to go on from its checkpoint; is_sealed: looked at once, when no rule is changed any more."""

    name: str
    kind: Kind = "dense"
    precision: Precision = "bfloat16"
    fault: Fault | None = None
    n_updates_a_rollout: int = 1
    warm_up: int = 0
    restarts_at: int | None = None
    check: Check = field(default_factory=Check)
    seed: int = 0
    is_sealed: bool = False


LONG, EASY = Check(n_statements=20), Check(n_statements=1, reads_arguments=False, reads_known_names=False)
HEALTHY = (
    Plan("dense-bfloat16"),
    Plan("dense-int8", precision="int8"),
    Plan("moe-bfloat16", kind="moe"),
    Plan("moe-int8", kind="moe", precision="int8"),
    Plan("dense-two-updates", n_updates_a_rollout=2),
    Plan("moe-two-updates", kind="moe", n_updates_a_rollout=2),
    Plan("warm-up", warm_up=40),
    Plan("restart", restarts_at=80),
    Plan("growth", check=LONG),
    Plan("solved", check=EASY),
)


def _ill(name: str, value: float, *accept: str, at: int = FAULT_AT, shows_within: int = 0) -> Fault:
    return Fault(name, value, frozenset(accept), at, shows_within)


SINGLE = (
    Plan("frozen", fault=_ill("frozen", 1, "engine_mismatch", "stale_rollouts", shows_within=10)),
    Plan("lag", fault=_ill("lag", 0.3, "stale_rollouts")),
    Plan("shift", kind="moe", fault=_ill("shift", 1, "corrupt_logprobs", at=0)),
    Plan("padding", precision="int8", fault=_ill("padding", 1, "corrupt_logprobs")),
    # With one update a rollout its ratio is 1 whatever the rate: it is known by what it does.
    Plan("learning-rate", fault=_ill("learning rate", 30, "step_too_large", "reward_collapse", shows_within=5)),
    Plan("sign", fault=_ill("sign", -1, "reward_collapse", "reward_decline")),
)
PAIRS = (
    (
        Plan("temperature-mild", kind="moe", fault=_ill("temperature", 0.9, "temperature")),
        Plan("temperature-strong", fault=_ill("temperature", 1, "temperature", at=0)),
    ),
    (
        Plan("top-p-mild", fault=_ill("top-p", 0.95, "support_shift")),
        Plan("top-p-strong", precision="int8", fault=_ill("top-p", 0.9, "support_shift", at=0)),
    ),
    (
        Plan("zeros-mild", fault=_ill("zeros", 0.05, "corrupt_logprobs", at=0)),
        Plan("zeros-strong", kind="moe", fault=_ill("zeros", 0.1, "corrupt_logprobs")),
    ),
    (
        Plan("router-mild", kind="moe", fault=_ill("router noise", 0.5, "engine_mismatch", "moe_routing")),
        Plan("router-strong", kind="moe", fault=_ill("router noise", 1, "engine_mismatch", "moe_routing", at=0)),
    ),
    (
        Plan("entropy-extreme", fault=_ill("entropy bonus", 0.4, "entropy_explosion", shows_within=20)),
        Plan("entropy-strong", kind="moe", fault=_ill("entropy bonus", 0.2, "entropy_explosion", shows_within=20)),
    ),
    (
        Plan(
            "length-mild",
            fault=_ill("length bonus", 0.5, "length_hacking", "length_surge", "cut_at_limit", shows_within=20),
        ),
        Plan(
            "length-strong",
            fault=_ill("length bonus", 1.5, "length_hacking", "length_surge", "cut_at_limit", shows_within=20),
        ),
    ),
)


def plans() -> Iterator[Plan]:
    """Yield the runs, each with another seed.

    The halves were drawn by configuration before any run was looked at: half of the healthy ones, half of the faults
    that come once, and one severity of each of the others. Both have since been judged. The half that was sealed then
    is open now; new runs with other seeds and severities take the place of the other half, and are sealed.
    """
    draw = random.Random("language")
    opened = {
        *(plan.name for plan in draw.sample(HEALTHY, len(HEALTHY) // 2)),
        *(plan.name for plan in draw.sample(SINGLE, len(SINGLE) // 2)),
        *(draw.choice(pair).name for pair in PAIRS),
    }
    every = (*HEALTHY, *SINGLE, *(plan for pair in PAIRS for plan in pair))
    for seed, plan in enumerate(every):
        is_sealed = plan.name not in opened
        yield replace(plan, seed=seed + len(every) * is_sealed, is_sealed=is_sealed)
