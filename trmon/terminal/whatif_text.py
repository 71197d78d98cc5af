"""Print what-ifs as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trmon_client.api import WhatIfInfo
from trmon_client.api.policies import RangeInfo, ShareInfo


def print_whatif(found: Sequence[WhatIfInfo], console: Console) -> None:
    """Print what each policy would have masked, what was masked, and why."""
    console.print(escape(_range(found[0].range)), highlight=False, soft_wrap=True)
    table = Table("policy", "sequences", "masked", "then", "advantage > 0", "advantage < 0", "by length, in quarters")
    for effect in found:
        shares = (effect.total, effect.then, effect.positive_advantage, effect.negative_advantage)
        quarters = " ".join(_percent(quarter) for quarter in effect.by_length)
        table.add_row(escape(effect.policy), f"{effect.total.n_sequences:,}", *map(_percent, shares), quarters)
    console.print(table)
    for effect in found:
        for line in _lines(effect):
            console.print(escape(line), highlight=False, soft_wrap=True)


def _range(reached: RangeInfo) -> str:
    missing = reached.n_steps_without_reports
    pruned = f"; of {missing:,} more the sequences are no longer stored" if missing else ""
    if reached.first_step is None:
        return f"no stored step{pruned}"
    return f"steps {reached.first_step} to {reached.last_step}, {reached.n_steps:,} of them{pruned}"


def _percent(share: ShareInfo) -> str:
    return f"{share.mask_rate:.2%}" if share.n_sequences else "-"


def _lines(effect: WhatIfInfo) -> Iterator[str]:
    if effect.weights is not None:
        mean, effective = effect.weights.mean, effect.weights.effective_share
        shown = f"mean weight {mean:.2%}, effective share {effective:.2%}"
        yield f"{effect.policy} is soft: {shown}; what it masks keeps a weight"
    if effect.reasons:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in effect.reasons.items())
        yield f"{effect.policy} rejects by: {reasons}"
    turns = effect.turns
    if turns is not None and turns.n_turns:
        yield f"{effect.policy} would mask {turns.mask_rate:.2%} of {turns.n_turns:,} turns"
    for rule, share in effect.tokens.items():
        yield f"{effect.policy}: {rule} would mask or cut {share.at_least:.2%} to {share.at_most:.2%} of the tokens"
    for lack, n in effect.undecided.items():
        yield f"{effect.policy}: {n:,} reports are not decided: {lack}"
