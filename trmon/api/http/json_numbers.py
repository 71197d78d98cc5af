"""Floats in JSON responses: NaN is null, and infinities are the strings "inf" and "-inf", as on the wire."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from trmon.domain.model.finding import json_number


def _read(value: object) -> object:
    return math.nan if value is None else value


Number = Annotated[
    float, BeforeValidator(_read), PlainSerializer(json_number, return_type=float | Literal["inf", "-inf"] | None)
]
"""Any float of a response; parsing the response restores it."""
