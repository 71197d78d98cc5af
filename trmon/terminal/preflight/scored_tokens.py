"""The sequences that a preflight has both engines score."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.preflight.token_pairs import EngineScores, Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredTokens:
    """Whole sequences, prompts included, [T_i] each; `mask`: the tokens that count, usually those of the response."""

    token_ids: Rows
    mask: Rows | None = None

    @classmethod
    def of(cls, scores: EngineScores) -> ScoredTokens | None:
        """Return the tokens of an engine's scores; None without token ids."""
        return None if scores.token_ids is None else cls(token_ids=scores.token_ids, mask=scores.mask)
