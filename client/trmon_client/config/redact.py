"""Remove secrets from text that leaves the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

REDACTED = "***"

_PRIVATE_NAME = r"token(?!s|iz)|secret|passw(?:or)?d|(?:api|wandb)[_-]?key|access[_-]?key|credential"
_PRIVATE_ENTRY = rf"{_PRIVATE_NAME}|(?:^|[./])key$"
_PATTERNS = (
    # user:password@ in a URL
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), rf"\1\2{REDACTED}"),
    # name=value and "name": "value"; n_tokens=512 and other plain numbers stay
    (
        re.compile(
            rf"(?i)([\w-]*(?:{_PRIVATE_NAME})[\w-]*"
            r"['\"]?\s*[:=]\s*['\"]?)(?![\d.]+\b)[^\s'\",;&)}\]]{4,}"
        ),
        rf"\1{REDACTED}",
    ),
    (
        re.compile(r"\b(sk-|hf_|gh[opsu]_|github_pat_|glpat-|xox[abpr]-|AKIA|trmon_)[A-Za-z0-9_-]{12,}"),
        rf"\1{REDACTED}",
    ),
)


def redact(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """Return a text without passwords, tokens and keys that are recognised by their form or their name.

    Args: secrets: texts that are replaced wherever they stand, such as the client's own token.
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_values(value: Any) -> Any:
    """Return plain values, such as a configuration, without the secrets that their form or their name shows."""
    if isinstance(value, dict):
        return {name: _redact_entry(name, entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [redact_values(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _redact_entry(name: str, entry: Any) -> Any:
    is_secret = isinstance(entry, str) and re.search(_PRIVATE_ENTRY, name, re.IGNORECASE)
    return REDACTED if is_secret and entry else redact_values(entry)
