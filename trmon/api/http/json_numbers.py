"""Numbers in answers: JSON cannot say NaN or infinity, so NaN is null and infinities are named, as on the wire."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from trmon.domain.alerts.deliveries import jsonable


def _read(value: object) -> object:
    return math.nan if value is None else value


Number = Annotated[
    float, BeforeValidator(_read), PlainSerializer(jsonable, return_type=float | Literal["inf", "-inf"] | None)
]
"""A float of an answer, whatever its value; a command that reads the answer gets it back."""
