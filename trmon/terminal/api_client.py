"""The HTTP client that the commands use to query a running service."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trmon.domain.model.errors import InvalidInput, NotReady
from trmon.domain.model.identity import RunKey

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClient:
    """A service's URL and the token to send."""

    url: str
    token: str | None
    timeout_seconds: float = 60.0

    def get(self, path: str) -> bytes:
        """Return the answer to a GET. Errors: NotReady if the service is unreachable or refuses."""
        return self._request("GET", path)

    def post(self, path: str, question: dict[str, Any]) -> bytes:
        """Return the answer to a POST. Errors: NotReady if the service is unreachable or refuses."""
        return self._request("POST", path, json=question)

    def _request(self, method: str, path: str, **content: Any) -> bytes:
        headers = authorization_header(self.token)
        timeout = httpx.Timeout(self.timeout_seconds, connect=10.0)
        try:
            with httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False) as client:
                answer = client.request(method, path, **content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotReady(f"no service answers at {self.url}: {error}; start one or give --url") from error
        if answer.status_code != httpx.codes.OK:
            raise NotReady(f"{self.url} answered {answer.status_code}: {problem_line(answer)}")
        return answer.content

    def read(self, kind: type[M], path: str) -> M:
        """Return the answer to a GET as a model. Errors: NotReady, also if another program answers."""
        return self.understood(kind, self.get(path))

    def understood(self, kind: type[M], answer: bytes) -> M:
        """Return an answer as a model. Errors: NotReady if it is not from trmon."""
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            raise NotReady(
                f"{self.url} does not answer like this version of trmon; pass the URL of a trmon service by --url"
            ) from error


def authorization_header(token: str | None) -> dict[str, str]:
    """Return the header that carries a token. Errors: InvalidInput for a malformed token, which the message omits."""
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise InvalidInput(
            "TRMON_TOKEN", "contains spaces, line ends or characters that a token cannot have; copy it again"
        )
    return {"Authorization": f"Bearer {token}"}


def parse_run_name(name: str, *, otherwise: str = "") -> RunKey:
    """Return the key of PROJECT/RUN. Args: otherwise: the alternative that the message offers. Errors: InvalidInput."""
    project, slash, run = name.partition("/")
    if not slash:
        raise InvalidInput("RUN", f"must be PROJECT/RUN, not {name!r}{otherwise}")
    return RunKey.checked(project, run)


def problem_line(answer: httpx.Response) -> str:
    """Return one line: the problem details, or the beginning of an answer that is not from trmon."""
    kind = answer.headers.get("content-type", "")
    if kind.startswith("application/problem+json"):
        with suppress(ValueError, KeyError, TypeError):
            return str(answer.json()["detail"])
    if kind.startswith("text/html"):
        return f"{answer.reason_phrase}, with a page that is not from trmon; pass the URL of a trmon service by --url"
    return " ".join(answer.text[:200].split())
