"""The page that says where the OpenAPI document is."""

from __future__ import annotations

import re

import httpx


def test_the_page_names_an_openapi_document_that_is_there(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    (link,) = re.findall(r'href="([^"]*openapi[^"]*)"', page.text)
    document = client.get(link).json()
    assert "/api/v1/runs" in document["paths"]


def test_everything_the_page_loads_is_of_the_service(client: httpx.Client) -> None:
    page = client.get("/docs").text
    loaded = re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', page)
    assert len(loaded) == 3
    assert all(client.get(path).status_code == 200 for path in loaded)
