"""Functions of the user that score tokens, named as module:function."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trmon.domain.errors import InvalidInput
from trmon.domain.preflight.token_pairs import EngineScores
from trmon.terminal.preflight.score_files import FIELDS
from trmon.terminal.preflight.scored_tokens import ScoredTokens

NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def score_with_function(name: str, tokens: ScoredTokens | None) -> EngineScores:
    """Return what a function says of the tokens.

    It is called as function(token_ids, mask) with one array for each sequence, mask None if all tokens count; without
    tokens it is called without arguments and brings its own. It returns log-probs, [B, T] or B rows as long as the
    token ids, or a mapping with logprobs and any of mask, token_ids and logits.
    Errors: InvalidInput if the function cannot be imported, fails, or returns something else.
    """
    function = _imported(name)
    try:
        found = function() if tokens is None else function(tokens.token_ids, tokens.mask)
    except Exception as error:
        raise InvalidInput(name, f"failed with {type(error).__name__}: {error}") from error
    fields: dict[str, Any] = dict(found) if isinstance(found, Mapping) else {"logprobs": found}
    if fields.get("logprobs") is None or (unknown := fields.keys() - set(FIELDS)):
        extra = f"; it also returned {', '.join(sorted(unknown))}" if fields.get("logprobs") is not None else ""
        raise InvalidInput(name, f"must return log-probs, or a mapping of {', '.join(FIELDS)}{extra}")
    return EngineScores.of(name, **_with_tokens(fields, tokens))


def _with_tokens(fields: dict[str, Any], tokens: ScoredTokens | None) -> dict[str, Any]:
    """Return the fields with the tokens that were scored, unless the function names its own."""
    if tokens is None or fields.get("token_ids") is not None:
        return fields
    return {"token_ids": tokens.token_ids, "mask": tokens.mask, **{k: v for k, v in fields.items() if v is not None}}


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    # As with `python -m`, modules of the working directory can be named.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InvalidInput(name, f"cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidInput(name, "is not a function")
    return found
