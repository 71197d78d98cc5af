"""Readers of training logs in files: one reader for each format, all registered in `registry`."""

from trmon.logs.log_format import LogFormat, LogItem, LogSample
from trmon.logs.registry import LOG_FORMATS, format_of, holds_log
from trmon.logs.source import STANDARD_INPUT, LogSource, log_file

__all__ = [
    "LOG_FORMATS",
    "STANDARD_INPUT",
    "LogFormat",
    "LogItem",
    "LogSample",
    "LogSource",
    "format_of",
    "holds_log",
    "log_file",
]
