"""Request and response schemas of adaptation."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.adaptation.adaptation_setting import AdaptationMode, AdaptationSetting
from trmon.domain.adaptation.proposal import ControllerResult, NoChange, NoChangeReason
from trmon.domain.model.errors import InvalidInput

_DEFAULT = AdaptationSetting()


class AdaptationSettingIn(BaseModel):
    """The adaptation setting of a run; omitted fields take the defaults of a new run."""

    model_config = ConfigDict(extra="forbid")

    mode: AdaptationMode
    target_mask_rate: float | None = Field(
        None, description="The fraction of sequences to reject; null: 0.05, or the rate of a calibrated policy."
    )
    window_sequences: int = Field(_DEFAULT.window_sequences, description="The number of newest sequences to use.")
    every_steps: int = Field(_DEFAULT.every_steps, description="Minimum number of steps between two changes.")
    floor_factor: float = Field(
        _DEFAULT.floor_factor, description="The smallest bound, as a factor of the one a person set."
    )
    ceiling_factor: float = Field(
        _DEFAULT.ceiling_factor, description="The largest bound, as a factor of the one a person set."
    )

    def setting(self) -> AdaptationSetting:
        """Return the setting. Errors: InvalidInput naming the field."""
        try:
            return AdaptationSetting(**self.model_dump())
        except ValueError as error:
            raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error


class MoveOut(ResponseModel):
    """A bound that would change; `wanted` is its value without limits."""

    statistic: str
    pair: str
    side: str
    before: Number
    after: Number
    wanted: Number
    limit: str | None = Field(description="What limits the change: factor, floor or ceiling.")


class ProposalOut(ResponseModel):
    """A controller's proposal: a policy to activate, or the reason to keep the bounds."""

    hold: NoChangeReason | None = None
    reason: str
    policy: dict[str, Any] | None = None
    n_sequences: int | None = None
    mask_rate_before: Number | None = None
    mask_rate_after: Number | None = None
    basis: dict[str, Number] = Field(default_factory=dict)
    moves: list[MoveOut] = Field(default_factory=list)

    @classmethod
    def of(cls, verdict: ControllerResult) -> Self:
        """Return the response for a verdict."""
        if isinstance(verdict, NoChange):
            return cls(hold=verdict.reason, reason=verdict.detail)
        moves = [MoveOut.from_fields(move, limit=move.limit and move.limit.value) for move in verdict.moves]
        return cls.from_fields(verdict, policy=verdict.policy.spec(), moves=moves)


class AdaptationOut(ResponseModel):
    """A run's adaptation setting and, unless it is off, the proposals for its newest stored sequences."""

    mode: AdaptationMode
    target_mask_rate: float | None
    window_sequences: int
    every_steps: int
    floor_factor: float
    ceiling_factor: float
    recommended: ProposalOut | None = None
    bound_budget: ProposalOut | None = Field(None, description="What an error bound would require; never applied.")

    @classmethod
    def of(
        cls,
        setting: AdaptationSetting,
        *,
        recommended: ControllerResult | None = None,
        bound_budget: ControllerResult | None = None,
    ) -> Self:
        """Return the response for a setting."""
        return cls.from_fields(
            setting,
            recommended=None if recommended is None else ProposalOut.of(recommended),
            bound_budget=None if bound_budget is None else ProposalOut.of(bound_budget),
        )
