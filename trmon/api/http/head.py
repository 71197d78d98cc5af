"""Answers HEAD as every route answers GET, without the body."""

from __future__ import annotations

from starlette.types import Message, Scope, Send


def answer_head(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the scope and the send of a GET whose response ends after its headers, even if its body never would."""
    has_ended = False

    async def send_headers(message: Message) -> None:
        nonlocal has_ended
        if message["type"] == "http.response.start":
            await send(message)
        elif not has_ended:
            has_ended = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return {**scope, "method": "GET"}, send_headers
