"""Removes secrets from texts and configurations: by the name of a value, and by the form of a token or a URL.

Control characters are replaced too: databases refuse NUL, and terminals obey the others.

The client redacts before it sends, the service before it stores and logs. The forms are those of gitleaks' rules,
GitHub's secret scanning and the vendors' documents. The time is proportional to the length of a text, since the service
reads texts of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

REDACTED = "***"
MIN_LENGTH = 8
"""No shorter text shows by its form that it is a secret."""


_PUBLIC, _IF_RANDOM, _UNLESS_WORD, _SECRET = range(4)
"""What a name says of its value: nothing; a secret if it looks random, since a key is often the name of a column; a
secret unless it looks like a word of a vocabulary, since a token often is one; a secret.
"""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# The words of a name are joined: HF_TOKEN, hf-token, hfToken and hftoken are one name.
_SECRET_NAME = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|authorization$|(?:basic|http|proxy|registry)auth$|^auth$|^sig$"
    r"|(?:api|access|private|account|auth|encryption|signing|ssh|license|subscription|master|wandb|hf|huggingface"
    r"|openai|anthropic|azure|aws|gcp|comet|neptune|clearml|swanlab|langsmith)keys?$"
    r"|(?:access|api|auth|bearer|github|hf|huggingface|hub|refresh|security|session|wandb)tokens?$"
    r"|(?:db|user|smtp|redis|mysql|pg)pass$|.pwd$|jwt$|bearer$|cookie$|connectionstring$|conn(?:ection)?str$|dsn$"
    r"|amzsignature$"
)
_PUBLIC_NAME = re.compile(r"(?:file|path|dir|folder|env|envvar|name|length|mode|type)$")
_VOCABULARY_NAME = re.compile(
    r"(?:eos|bos|pad|unk|mask|sep|cls|stop|special|image|video|audio|vision|start|end|prefix|suffix|middle|boi|eoi|sot"
    r"|eot|think|thinking|tool|call|response|answer|prompt|step|separator|delimiter|newline|placeholder|per|max|min|num"
    r"|n|next|last|first|new|reserved|fim)\d*token$"
)
_VOCABULARY = re.compile(r"<.*>|\[.*\]|\W*|.{1,3}|\d{1,7}", re.DOTALL)
_RANDOM = re.compile(
    r"(?=[A-Za-z+/=]*\d)(?=[\d+/=]*[A-Za-z])[A-Za-z0-9+/=]{20,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_NO_VALUE = frozenset(("", "none", "null", "true", "false", REDACTED))


@lru_cache(4096)
def _privacy(name: str) -> int:
    joined = "".join(_WORDS.findall(name[-256:])).lower()
    if _PUBLIC_NAME.search(joined):
        return _PUBLIC
    if _SECRET_NAME.search(joined):
        return _SECRET
    if joined.endswith("token") and not _VOCABULARY_NAME.search(joined):
        return _UNLESS_WORD
    return _IF_RANDOM if joined.endswith("key") else _PUBLIC


def _is_hidden(privacy: int, value: Any) -> bool:
    if privacy == _SECRET:
        return str(value).lower() not in _NO_VALUE
    if privacy == _PUBLIC or not isinstance(value, str):
        return False
    if privacy == _UNLESS_WORD:
        return value.lower() not in _NO_VALUE and not _VOCABULARY.fullmatch(value)
    return _RANDOM.fullmatch(value) is not None


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|wandb_v\d_\w{16,}|local-[0-9a-f]{40}"  # Hugging Face, W&B
    r"|sk-(?=[\w-]{0,64}\d)[\w-]{16,}|[sr]k_(?:live|test|prod)_\w{10,}"  # OpenAI, Anthropic, Stripe
    r"|gh[opsur]_\w{16,}|github_pat_\w{16,}"
    r"|gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|oas|soat|ffct)-[\w-]{16,}|gl(?:sa|c)_[\w+/=]{20,}"  # GitLab, Grafana
    r"|xox[a-z](?:\.xox[a-z])?-[\w-]{10,}|xapp-[\w-]{10,}"  # Slack
    r"|(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}|ABSK[A-Za-z0-9+/=]{40,}|LTAI[A-Za-z0-9]{16,}"  # AWS, Alibaba
    r"|AIza[\w-]{30,}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{16,}"  # Google
    r"|trmon_\w{12,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|dckr_pat_[\w-]{16,}|hv[sbr]\.[\w-]{20,}|SG\.[\w.-]{40,}"
    r"|dapi[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{32,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}"
    r"|nvapi-[\w-]{20,}|r8_[A-Za-z0-9]{20,}|lsv2_(?:pt|sk)_\w{16,}|tgp_v1_[\w-]{16,}|rpa_[A-Z0-9]{20,}"
    r"|ops_eyJ[\w+/=]{40,}|AGE-SECRET-KEY-1\w{20,}|sntry[su]_[\w+/=]{20,}|lin_api_\w{20,}|PMAK-[\w-]{30,}"
    r"|\d{8,10}:AA[\w-]{33})"  # Telegram
)
_LONG = re.compile(r"[\w+/=.:-]{16}")
_KIND = re.compile(r"[A-Za-z]+[0-9]?[_.-]|[A-Z]{4}")
_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,30}://[^\s'\"<>]+")
_PORT = re.compile(r"\d{1,5}(?:[/?#]|\Z)")
_NAMED = re.compile(
    r"(?P<name>(?<![\w.-])[\w.-]{1,128})\\?['\"]?\]?\s{0,8}(?:=>|:=|==?|:)\s{0,8}"
    r"|(?P<option>(?<!\S)--?[A-Za-z][\w.-]{0,127})\s{1,8}(?!-)"
)
_VALUE = re.compile(r"(?P<open>\\?[\"'])(?P<quoted>(?:(?!(?P=open))(?:\\.|[^\\]))*)|[^\s\",;&)}\]\\]+(?<!')", re.DOTALL)
_PATTERNS = (
    (
        "-----begin",
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL),
        REDACTED,
    ),
    (
        "authorization",
        re.compile(
            r"(?i)(authorization(?!: bearer <token>)\\?['\"]?\s{0,8}[:=]\s{0,8}\\?['\"]?"
            r"(?:(?:bearer|basic|digest|token|apikey|negotiate)\s{1,4})?)[^'\"\n\r}\\]+"
        ),
        rf"\1{REDACTED}",
    ),
    ("bearer", re.compile(r"(?i)\b(bearer\s{1,4})(?=[\w.~+/-]{0,64}[\d=]|\w{20})[\w.~+/=-]{8,}"), rf"\1{REDACTED}"),
    ("basic", re.compile(r"(?i)\b(basic\s{1,4})(?=[\w+/]{0,64}[\d=])[\w+/=]{8,}"), rf"\1{REDACTED}"),
    ("login", re.compile(r"(?i)\b(login\s{1,4}\S{1,128}\s{1,4}password\s{1,4})\S+"), rf"\1{REDACTED}"),  # .netrc
    ("eyj", re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*"), REDACTED),  # JSON Web Tokens
    ("slack.com", re.compile(r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/+-]+"), rf"\1{REDACTED}"),
    ("discord", re.compile(r"(discord(?:app)?\.com/api/webhooks/)[\w/-]+"), rf"\1{REDACTED}"),
)
"""Words that a text must hold, in lower case, and what is replaced in such a text."""


def redact(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """Return a text without control characters, and without secrets that are recognised by their form or their name.

    Args: secrets: texts that are replaced wherever they stand, such as the client's own token.
    """
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    if len(text) < MIN_LENGTH:
        return text
    if "://" in text:
        text = _URL.sub(_without_user, text)
    lower = text.lower()
    for word, pattern, replacement in _PATTERNS:
        if word in lower:
            text = pattern.sub(replacement, text)
    if _LONG.search(text):
        text = _TOKEN.sub(_without_token, text)
    return _without_named(text) if ":" in text or "=" in text or text[0] == "-" or " -" in text else text


def _without_token(found: re.Match[str]) -> str:
    kind = _KIND.match(found[0])
    return f"{kind[0] if kind else ''}{REDACTED}"


def _without_user(found: re.Match[str]) -> str:
    """Return a URL, and URLs in it, without user and password; a password may hold what ends a host."""
    first, *rest = found[0].split("://")
    return "://".join([first, *map(_without_user_of_host, rest)])


def _without_user_of_host(rest: str) -> str:
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in host:
        return f"{REDACTED}@{host.rpartition('@')[2]}{rest[len(host) :]}"
    user, colon, password = rest.partition(":")
    if colon and len(user) < len(host) and not _PORT.match(password) and "@" in password and not user.startswith("["):
        return f"{REDACTED}@{password.rpartition('@')[2]}"
    return rest


def _without_named(text: str) -> str:
    """Return a text without the secrets in name=value, "name": "value" and --name value."""
    parts: list[str] = []
    end = 0
    for found in _NAMED.finditer(text):
        privacy = _privacy(found["name"] or found["option"])
        is_header = (found["name"] or "").lower().endswith("authorization")
        if privacy == _PUBLIC or is_header or found.start() < end:
            continue
        value = _VALUE.match(text, found.end())
        if value is not None and _is_hidden(privacy, value[0] if value["open"] is None else value["quoted"]):
            parts += [text[end : found.end()], value["open"] or "", REDACTED]
            end = value.end()
    return "".join([*parts, text[end:]])


def redact_values(value: Any) -> Any:
    """Return plain values, such as a configuration, without the secrets that their form or their name shows."""
    return _redacted(value, _PUBLIC, "")


def _redacted(value: Any, privacy: int, parent: str) -> Any:
    """Return a value without secrets. Args: parent: the name of the mapping that holds it; privacy: of all it holds."""
    if isinstance(value, dict):
        named = value.get("name", value.get("key")) if "value" in value else None
        privacies = {name: _privacy(f"{parent}.{name}" if name == "key" else str(name)) for name in value}
        if isinstance(named, str):
            privacies["value"] = _privacy(named)
        return {
            redact(name) if isinstance(name, str) else name: _redacted(item, max(privacy, privacies[name]), str(name))
            for name, item in value.items()
        }
    if isinstance(value, list):
        is_pair = len(value) == 2
        return [
            _redacted(item, max(privacy, _privacy_after(before, is_pair=is_pair)), parent)
            for before, item in zip([None, *value], value, strict=False)
        ]
    if privacy and _is_hidden(privacy, value):
        return REDACTED
    return redact(value) if isinstance(value, str) else value


def _privacy_after(before: Any, *, is_pair: bool) -> int:
    """Return how private an item of a list is after another one: of a command's options, or of a name and its value."""
    if not isinstance(before, str) or not (is_pair or before.startswith("-")):
        return _PUBLIC
    return _privacy(before) if re.fullmatch(r"-{0,2}[A-Za-z][\w.-]{0,127}", before) else _PUBLIC
