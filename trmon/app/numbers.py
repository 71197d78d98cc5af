"""Numbers in answers: JSON cannot say NaN or infinity, so NaN is null and infinities are named, as on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainSerializer

from trmon.domain.deliveries import jsonable

Number = Annotated[float, PlainSerializer(jsonable, return_type=float | Literal["inf", "-inf"] | None)]
"""A float of an answer, whatever its value."""
