"""Numbers that JSON cannot express."""

from __future__ import annotations

import math

from trmon.domain.severity import json_number


def test_nan_is_null_and_infinities_have_names() -> None:
    assert [json_number(x) for x in (1.5, math.nan, math.inf, -math.inf)] == [1.5, None, "inf", "-inf"]
