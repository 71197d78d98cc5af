"""Logs: structured lines on stderr, for people or for machines; secrets are never among the fields."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

import structlog

from trmon.config.environment_check import unknown_variables
from trmon.config.settings import Settings

log = structlog.get_logger(__name__)


def configure_logging(settings: Settings) -> None:
    """Send every log line, the libraries' too, to stderr in the form and from the level that are set."""
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=stamp, processors=[_strip, *_renderers(settings)])
    )
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    # What uvicorn logs of failures, trmon.api.http.problems and the command say themselves, once and in our form.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def warn_of_unknown_variables(variables: Iterable[str]) -> None:
    """Log which variables look like settings and are none. Args: variables: the names of those in the environment."""
    for name, near in unknown_variables(variables):
        log.warning("unknown_variable", variable=name, nearest=near)


def _strip(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(logger, name, event)


def _renderers(settings: Settings) -> list[structlog.typing.Processor]:
    """Return what writes a line; tracebacks go without the values of locals, which may be secrets."""
    if settings.log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
