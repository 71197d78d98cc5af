"""The sequences that a preflight has both engines score."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores, Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredTokens:
    """Whole sequences, prompts included, [T_i] each; `mask`: the tokens that count, usually those of the response."""

    token_ids: Rows
    mask: Rows | None = None

    @classmethod
    def of(cls, scores: EngineScores) -> ScoredTokens | None:
        """Return the tokens of an engine's scores; None without token ids."""
        return None if scores.token_ids is None else cls(token_ids=scores.token_ids, mask=scores.mask)


CONCURRENT_REQUESTS = 8
TIMEOUT_SECONDS = 600.0
SHOWN_CHARACTERS = 300
_TOKEN_ID = re.compile(r"token_id:(\d+)")
_WITH_IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One sequence as the engine scored it; `token_ids` None if it names none."""

    logprobs: Any
    mask: Any
    token_ids: Any | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsEndpoint:
    """An endpoint: its URL up to `/v1`, the model (None: the first that it lists), and the key."""

    url: str
    model: str | None = None
    api_key: str | None = None

    @property
    def name(self) -> str:
        """The URL without user and password, as reports and errors name the endpoint."""
        before, separator, rest = self.url.partition("://")
        return f"{before}{separator}{rest.rpartition('@')[2]}"

    def score(self, tokens: ScoredTokens) -> EngineScores:
        """Return log-probs of tokens. Errors: InvalidInput."""
        masks = tokens.mask or tuple(np.ones(len(row), bool) for row in tokens.token_ids)
        headers = _authorization(self.api_key)
        timeout = httpx.Timeout(TIMEOUT_SECONDS, connect=10.0)
        with httpx.Client(headers=headers, timeout=timeout, trust_env=False) as client:
            model = self.model or self._first_model(client)

            def complete(options: Mapping[str, Any]) -> Mapping[str, Any]:
                choices = self._request(client, "POST", "completions", json={"model": model, **options}).get("choices")
                if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
                    raise InvalidInput(self.name, "answers without choices")
                return choices[0]

            with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
                pairs = zip(tokens.token_ids, masks, strict=True)
                rows = list(pool.map(lambda pair: self._scored(complete, *pair), pairs))
        has_ids = all(row.token_ids is not None for row in rows)
        return EngineScores.of(
            self.name,
            logprobs=[row.logprobs for row in rows],
            mask=[row.mask for row in rows],
            token_ids=[row.token_ids for row in rows] if has_ids else None,
        )

    def _scored(self, complete: Callable[..., Mapping[str, Any]], token_ids: Any, mask: Any) -> ScoredRow:
        # One token is generated, because not every engine accepts a request for none.
        options = {"prompt": token_ids.tolist(), "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 1.0}
        choice = complete({**options, **_WITH_IDS})
        logprobs, ids = self._logprobs(choice), self._ids(choice)
        n = len(logprobs) - 1 if ids is None else len(ids)
        if n < 1 or len(logprobs) < n:
            raise InvalidInput(self.name, f"returned {len(logprobs)} log-probs of a prompt of {len(token_ids)} tokens")
        # Tokens that an engine adds, such as a beginning of the sequence, come first.
        aligned = np.append(np.zeros(max(0, n - len(mask)), bool), mask[max(0, len(mask) - n) :])
        return ScoredRow(logprobs[:n], aligned, ids)

    def _logprobs(self, choice: Mapping[str, Any]) -> Any:
        """Return the log-probs of a choice, NaN where it has null, as for the first token of a prompt."""
        found = (choice.get("logprobs") or {}).get("token_logprobs")
        if not isinstance(found, list):
            raise InvalidInput(self.name, "answers without logprobs.token_logprobs; does the model return log-probs?")
        return self._array(found, np.float64)

    def _ids(self, choice: Mapping[str, Any]) -> Any | None:
        """Return the token ids of the prompt, else those given in place of the tokens' texts; None without either."""
        if isinstance(choice.get("prompt_token_ids"), list):
            return self._array(choice["prompt_token_ids"], np.int64)
        texts: Sequence[str] = (choice.get("logprobs") or {}).get("tokens") or ()
        matches = [_TOKEN_ID.fullmatch(str(text)) for text in texts]
        if not matches or None in matches:
            return None
        return np.array([int(match[1]) for match in matches if match is not None][:-1], np.int64)

    def _array(self, values: Sequence[Any], dtype: type) -> Any:
        try:
            return np.array(values, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(self.name, f"answers with values that are no numbers: {error}") from error

    def _first_model(self, client: httpx.Client) -> str:
        listed = self._request(client, "GET", "models").get("data")
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict) or "id" not in listed[0]:
            raise InvalidInput(self.name, "lists no model; name one by --model")
        return str(listed[0]["id"])

    def _request(self, client: httpx.Client, method: str, path: str, **content: Any) -> Mapping[str, Any]:
        try:
            answer = client.request(method, f"{self.url.rstrip('/')}/{path}", **content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise InvalidInput(self.name, f"does not answer: {error}") from error
        if answer.status_code != httpx.codes.OK:
            raise InvalidInput(self.name, f"answered {answer.status_code}: {answer.text[:SHOWN_CHARACTERS]}")
        try:
            found = answer.json()
        except ValueError as error:
            raise InvalidInput(self.name, "does not answer in JSON") from error
        if not isinstance(found, dict):
            raise InvalidInput(self.name, "does not answer with a JSON object")
        return found


def _authorization(key: str | None) -> dict[str, str]:
    """Return the header that carries a key. Errors: InvalidInput for a malformed one, which the message omits."""
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidInput("the API key", "contains spaces, line ends or characters that a key cannot have")
    return {"Authorization": f"Bearer {key}"}
