"""SkyRL's models need the TypedDict of Python 3.12, which typing_extensions has for earlier versions."""

from __future__ import annotations

import sys
import typing

import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict
