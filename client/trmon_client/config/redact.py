"""Remove secrets from text that leaves the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterable

REDACTED = "***"

_PATTERNS = (
    # user:password@ in a URL
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), rf"\1\2{REDACTED}"),
    # name=value and "name": "value"; n_tokens=512 and other plain numbers stay
    (
        re.compile(
            r"(?i)([\w-]*(?:token(?!s|iz)|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)[\w-]*"
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
