"""A setting that cannot be is refused by its field."""

from __future__ import annotations

from typing import Any

import pytest

from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting


def test_adaptation_is_off_unless_asked_for() -> None:
    assert AdaptationSetting().mode is AdaptationMode.OFF


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_mask_rate", 0.0),
        ("target_mask_rate", 0.6),
        ("target_mask_rate", float("nan")),
        ("window_sequences", 255),
        ("window_sequences", 65_537),
        ("every_steps", 0),
        ("every_steps", 10**30),
        ("floor_factor", 0.0),
        ("floor_factor", 1.5),
        ("ceiling_factor", 0.9),
        ("ceiling_factor", float("inf")),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        AdaptationSetting(**{field: value})
