"""How a process of the trainer ends: by closing, by itself, by an exception, an exit code or a signal."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from trmon_client.config.run_config import sanitize
from trmon_client.core.redaction import redact
from trmon_client.core.wire import EndReason

MAX_ERROR_LENGTH = 1000
MAX_TRACEBACK_LENGTH = 3000
MAX_FRAMES = 8
"""The innermost frames of a traceback that are reported."""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a process, as text: an exception would keep the trainer's frames, and all tensors in them.

    `error` is one line, empty for an end without an error; `traceback` holds the exception's innermost frames.
    """

    reason: EndReason
    error: str = ""
    traceback: str = ""
    exit_code: int | None = None
    signal: str = ""

    @property
    def is_crash(self) -> bool:
        """Whether the process failed."""
        return self.reason in (EndReason.EXCEPTION, EndReason.EXIT_CODE)

    @property
    def is_orderly(self) -> bool:
        """Whether the trainer ended where it wanted to: its last update is then as long as it was meant to be."""
        return self.reason in (EndReason.CLOSED, EndReason.EXITED)

    @classmethod
    def by_exception(cls, error: BaseException, *, orderly: EndReason = EndReason.EXITED) -> ProcessEnd:
        """Return the end by an exception; SystemExit is the end by its code, 0 the given orderly end.

        KeyboardInterrupt is the end by SIGINT, which a person sent.
        """
        if isinstance(error, SystemExit):
            return cls.by_exit(error.code, orderly=orderly)
        if isinstance(error, KeyboardInterrupt):
            return cls(EndReason.SIGNAL, signal="SIGINT")
        text = f"{type(error).__name__}: {_text(error)}"[:MAX_ERROR_LENGTH]
        return cls(EndReason.EXCEPTION, error=text, traceback=_frames(error))

    @classmethod
    def by_exit(cls, status: Any, *, orderly: EndReason = EndReason.EXITED) -> ProcessEnd:
        """Return the end by an argument of `sys.exit`: None and 0 are success, a text is printed and means 1."""
        if status is None or (isinstance(status, int) and status == 0):
            return cls(orderly)
        if isinstance(status, int):
            return cls(EndReason.EXIT_CODE, error=f"exit code {int(status)}", exit_code=_limited(int(status)))
        text = f"exit code 1: {_text(status)}"[:MAX_ERROR_LENGTH]
        return cls(EndReason.EXIT_CODE, error=text, exit_code=1)


def _text(value: object) -> str:
    # Half of a secret, cut off at the limit, could not be recognised.
    return redact(sanitize(value, at_most=4 * MAX_ERROR_LENGTH))


def _limited(code: int) -> int:
    return code if abs(code) < 1 << 31 else 1


def _frames(error: BaseException) -> str:
    """Return the innermost frames, newest last; their source lines are read from disk, of no more than MAX_FRAMES."""
    try:
        lines = traceback.format_tb(error.__traceback__, limit=-MAX_FRAMES)
    except Exception:  # noqa: BLE001  the trainer's loaders may raise anything when a source line is read
        return ""
    text = redact(sanitize("".join(lines), at_most=1 << 20)).rstrip()
    return text[-MAX_TRACEBACK_LENGTH:]
