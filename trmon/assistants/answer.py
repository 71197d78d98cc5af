"""The base of what tools answer, and the result that carries it."""

from __future__ import annotations

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from trmon.domain.errors import InvalidInput

MAX_ANSWER_BYTES = 32_768
"""Of one answer: every limit of a tool keeps it far below, whatever a trainer sends."""


class ToolAnswer(BaseModel):
    """A structured answer; a field that is unknown is left out."""

    model_config = ConfigDict(frozen=True)


def as_result(answer: ToolAnswer) -> CallToolResult:
    """Return an answer as JSON, structured and as text: clients show a model one of the two.

    Errors: InvalidInput for an answer over `MAX_ANSWER_BYTES`.
    """
    document = answer.model_dump(mode="json", exclude_none=True)
    text = to_json(document).decode()
    if len(text.encode()) > MAX_ANSWER_BYTES:
        raise InvalidInput(
            "limit", f"the answer has over {MAX_ANSWER_BYTES} bytes; ask for fewer items, points or names"
        )
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=document)
