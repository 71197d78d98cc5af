"""Adaptation in requests and answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.adaptation.adaptation_setting import AdaptationMode, AdaptationSetting
from trmon.domain.adaptation.proposal import ControllerResult, NoChange, NoChangeReason
from trmon.domain.model.errors import InvalidInput

_DEFAULT = AdaptationSetting()


class AdaptationSettingIn(BaseModel):
    """How a run's bounds shall be adapted; what is not given is as for a new run."""

    model_config = ConfigDict(extra="forbid")

    mode: AdaptationMode
    target_mask_rate: float = Field(_DEFAULT.target_mask_rate, description="The fraction of sequences to reject.")
    window_sequences: int = Field(_DEFAULT.window_sequences, description="How many of the newest sequences count.")
    every_steps: int = Field(_DEFAULT.every_steps, description="Steps between two changes.")
    floor_factor: float = Field(_DEFAULT.floor_factor, description="The least bound, in terms of the one a person set.")
    ceiling_factor: float = Field(_DEFAULT.ceiling_factor, description="The largest bound, in the same terms.")

    def setting(self) -> AdaptationSetting:
        """Return the setting. Errors: InvalidInput naming the field."""
        try:
            return AdaptationSetting(**self.model_dump())
        except ValueError as error:
            raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error


class MoveOut(BaseModel):
    """One bound that would move; `wanted` is where it would go without limits."""

    statistic: str
    pair: str
    side: str
    before: Number
    after: Number
    wanted: Number
    limit: str | None = Field(description="What keeps it from there: factor, floor or ceiling.")


class ProposalOut(BaseModel):
    """What a controller says now: a policy to put in force, or why the bounds stay."""

    hold: NoChangeReason | None = None
    reason: str
    policy: dict[str, Any] | None = None
    n_sequences: int | None = None
    mask_rate_before: Number | None = None
    mask_rate_after: Number | None = None
    basis: dict[str, Number] = {}
    moves: list[MoveOut] = []

    @classmethod
    def of(cls, verdict: ControllerResult) -> Self:
        """Return a verdict as answered."""
        if isinstance(verdict, NoChange):
            return cls(hold=verdict.reason, reason=verdict.detail)
        return cls(
            reason=verdict.reason,
            policy=verdict.policy.spec(),
            n_sequences=verdict.n_sequences,
            mask_rate_before=verdict.mask_rate_before,
            mask_rate_after=verdict.mask_rate_after,
            basis=verdict.basis,
            moves=[MoveOut(**asdict(move) | {"limit": move.limit and move.limit.value}) for move in verdict.moves],
        )


class AdaptationOut(BaseModel):
    """A run's setting and what its controllers say of its newest stored sequences; nothing where the mode is off."""

    mode: AdaptationMode
    target_mask_rate: float
    window_sequences: int
    every_steps: int
    floor_factor: float
    ceiling_factor: float
    recommended: ProposalOut | None = None
    bound_budget: ProposalOut | None = Field(None, description="What an error bound would ask for; never applied.")

    @classmethod
    def of(
        cls,
        setting: AdaptationSetting,
        *,
        recommended: ControllerResult | None = None,
        bound_budget: ControllerResult | None = None,
    ) -> Self:
        """Return a setting as answered."""
        return cls(
            **asdict(setting),
            recommended=None if recommended is None else ProposalOut.of(recommended),
            bound_budget=None if bound_budget is None else ProposalOut.of(bound_budget),
        )
