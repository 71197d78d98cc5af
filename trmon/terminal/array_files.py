"""Reads .npz files of anybody: what they claim is checked before memory is taken for it."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from trmon.domain.errors import InvalidInput

MAX_RATIO = 64
"""Maximum size of the arrays over that of the file: compressed log-probs reach 10, zeros 1,000."""
FREE_BYTES = 256 << 20
"""Up to this size the arrays may have any ratio, as masks and padding do."""
MAX_EMPTY_BYTES = 1 << 20
"""Maximum size of an array without elements if each of its empty dimensions were 1."""
_SUFFIX = ".npy"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_FAILURES = (
    *(OSError, ValueError, TypeError, EOFError, SyntaxError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def read_arrays(path: Path, *, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the arrays of a .npz file by name; None: all of them.

    Errors: InvalidInput naming the file if it is damaged, or takes far more memory than it has bytes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(_SUFFIX)]
            wanted = [member for member in members if names is None or _array_name(member) in names]
            file_bytes = path.stat().st_size
            for member in wanted:
                if member.compress_type not in _COMPRESSIONS:
                    raise ValueError(f"{member.filename} is compressed in a way that numpy does not write")
            n_bytes = sum(member.file_size for member in wanted)
            if n_bytes > max(FREE_BYTES, MAX_RATIO * file_bytes):
                raise ValueError(
                    f"its {file_bytes:,} bytes expand to {n_bytes:,}; write arrays above {FREE_BYTES >> 20} MiB "
                    "with np.savez, uncompressed"
                )
            return {_array_name(member): _read(archive, member) for member in wanted}
    except _FAILURES as error:
        raise InvalidInput(str(path), f"cannot be read: {error or type(error).__name__}") from error


def _array_name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(_SUFFIX)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the .npy format is not that of an array of numbers")
        shape, _, dtype = _HEADERS[version](file)
        n_bytes = dtype.itemsize * math.prod(shape)
        # Without elements an array can have dimensions over which a loop never ends.
        least_bytes = max(1, dtype.itemsize) * math.prod(max(1, size) for size in shape)
        if n_bytes > member.file_size or (n_bytes == 0 and least_bytes > MAX_EMPTY_BYTES) or min(shape, default=0) < 0:
            raise ValueError(
                f"{member.filename} claims the shape {shape} of {dtype}, and has {member.file_size:,} bytes"
            )
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
