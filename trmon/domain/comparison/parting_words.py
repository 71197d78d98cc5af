"""Where runs part, as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.domain.comparison.parting import Parting

TOLD = 3
NAMES = {
    "reward_mean": "reward",
    "sampled_entropy": "entropy",
    "response_length_mean": "response length",
    "grad_norm": "gradient norm",
    "kl_k3": "KL",
    "ess_token": "effective samples",
    "prob_pearson": "agreement of the engines",
    "mask_rate": "masked share",
    "version_lag_mean": "version lag",
}


def parting_sentence(found: Sequence[Parting], *, by_time: bool, is_long_enough: bool) -> str:
    """Return e.g. "They part at step 250: entropy first, then reward at 262"."""
    if not is_long_enough:
        return "They have too few steps in common to tell where they part."
    later = [parting for parting in found if not parting.from_start]
    always = ", ".join(_name(parting) for parting in found if parting.from_start)
    differ = f"{always} {'differs' if always.count(',') == 0 else 'differ'} from the start" if always else ""
    if not later:
        return f"They do not part: {differ}, and nothing else." if differ else "They do not part: no signal differs."
    first, *others = later
    then = ", ".join(f"{_name(parting)} at {_place(parting, by_time=by_time)}" for parting in others[: TOLD - 1])
    unit = "" if by_time else "step "
    sentence = f"They part at {unit}{_place(first, by_time=by_time)}: {_name(first)} first"
    return f"{sentence}{f', then {then}' if then else ''}{f'; {differ}' if differ else ''}."


def _name(parting: Parting) -> str:
    return NAMES.get(parting.signal, parting.signal.replace("_", " "))


def _place(parting: Parting, *, by_time: bool) -> str:
    if not by_time:
        return str(int(parting.place))
    minutes = parting.place / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
