"""Pictures of messages: services such as Slack fetch what they show, without a token, by a signed link that expires."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Response

from trmon.api.http.components import Service
from trmon.domain.errors import NotFound

router = APIRouter(tags=["alerts"])
KIND = ".png"


@router.get("/pictures/{name}", response_class=Response, responses={200: {"content": {"image/png": {}}}})
def get_picture(name: Annotated[str, Path(max_length=2048)], service: Service) -> Response:
    """Return the picture of an illness that a message links to; needs no token but the link's own signature."""
    if not name.endswith(KIND):
        raise NotFound("picture", "of this link")
    content = service.pictures.opened(name.removesuffix(KIND), now=time.time())
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})
