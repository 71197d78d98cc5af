"""Configures structured logs on stderr, as text or JSON."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable

import structlog

from trmon.config.settings import Settings, unknown_variables
from trmon_client.core.redaction import redact

log = structlog.get_logger(__name__)


def configure_logging(settings: Settings) -> None:
    """Send all log lines, those of libraries included, to stderr in the configured format and level."""
    stamp: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[*stamp, *_renderers(settings)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter
    strip = formatter.remove_processors_meta
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(foreign_pre_chain=stamp, processors=[strip, *_renderers(settings)]))
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    # trmon.api.http.problems and the command already log the failures that uvicorn would log.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def warn_of_unknown_variables(variables: Iterable[str]) -> None:
    """Log the unknown TRMON_* variables. Args: variables: the names of all environment variables."""
    for name, similar in unknown_variables(variables):
        log.warning("unknown_variable", variable=name, similar=similar)


def _renderers(settings: Settings) -> list[structlog.typing.Processor]:
    """Return the processors that render a line; tracebacks omit local variables, which may hold secrets."""
    redacting = _on_texts(redact)  # the error of a library may hold a URL with its password
    if settings.log_format == "json":
        return [structlog.processors.format_exc_info, redacting, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    return [structlog.processors.format_exc_info, _on_texts(_escaped), redacting, console]


def _on_texts(change: Callable[[str], str]) -> structlog.typing.Processor:
    """Return the processor that changes each text of an event."""
    return lambda _logger, _name, event: {
        key: change(value) if isinstance(value, str) else value for key, value in event.items()
    }


def _escaped(text: str) -> str:
    """Escape control and invisible characters, since a path or the text of an error may come from anybody."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
