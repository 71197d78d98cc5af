"""Finds environment variables that look like settings but are unknown, to report typing errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from trmon.config.secret_files import SUFFIX, is_secret
from trmon.config.settings import Settings

PREFIX = "TRMON_"
CLIENT_SETTINGS = (
    *("project", "run", "mode", "url", "token", "policy", "owner", "tags"),
    *("attempt", "rank", "world_size", "spool_dir", "signals", "token_file"),
    *("record_dir", "record_steps", "record_texts", "compiled"),
)
"""The settings that the client reads."""
SECRET_FILES = tuple(f"{name}{SUFFIX}" for name, field in Settings.model_fields.items() if is_secret(field.annotation))
"""The variables that name the file of a secret."""
KUBERNETES_VARIABLE = re.compile(r"(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
"""Variables that Kubernetes sets in every pod for a Service named trmon, besides TRMON_PORT."""


def unknown_variables(variables: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the unknown TRMON_* variables in order, each with the most similar known one, if any."""
    known = sorted({name.upper() for name in (*Settings.model_fields, *SECRET_FILES, *CLIENT_SETTINGS)})
    for variable in sorted(variable for variable in variables if variable.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name not in known and not KUBERNETES_VARIABLE.fullmatch(name):
            similar = get_close_matches(name, known, n=1, cutoff=0.75)
            yield variable, f"{PREFIX}{similar[0]}" if similar else None
