"""Readers of training logs in files: one reader for each format, all registered in `registry`."""

from trmon.log_formats.log_format import LogFormat, LogItem, LogSample
from trmon.log_formats.registry import LOG_FORMATS, format_of, is_log_folder, read_log, sound_rows

__all__ = ["LOG_FORMATS", "LogFormat", "LogItem", "LogSample", "format_of", "is_log_folder", "read_log", "sound_rows"]
