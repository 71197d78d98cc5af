"""Files of arrays: a claim that the file does not keep is refused before memory is taken, and nothing else escapes."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.fuzzing import edited
from trmon.domain.errors import InvalidInput
from trmon.terminal.array_files import FREE_BYTES, read_arrays

MEMORY_BYTES = 1 << 30
"""What the process that reads the bombs may map: less than any of them would take."""


def npy(shape: str, *, descr: str = "'<f8'", data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """Return a .npy file whose header claims a shape."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + data


def with_member(data: bytes, **options: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", **options) as archive:  # type: ignore[arg-type]
            archive.writestr("logprobs.npy", data)

    return write


def inflating(path: Path) -> None:
    """An entry of a few MiB that inflates to a GiB of zeros, as its header says truly."""
    n_bytes = 1 << 30
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("logprobs.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy(f"({n_bytes // 8},)"))
        for _ in range(n_bytes >> 24):
            file.write(bytes(1 << 24))


def overlapping(path: Path) -> None:
    """A thousand entries that share the data of one."""
    with_member(npy("(131072,)", data=bytes(1 << 20)), compression=zipfile.ZIP_DEFLATED)(path)
    with zipfile.ZipFile(path, "a") as archive:
        [member] = archive.infolist()
        for i in range(1000):
            again = zipfile.ZipInfo(f"a{i}.npy")
            for name in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(again, name, getattr(member, name))
            archive.filelist.append(again)
        archive._didModify = True


def falsely_sized(path: Path) -> None:
    """An entry whose directory says a terabyte."""
    with_member(npy("(1,)", data=bytes(8)))(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.infolist()[0].file_size = 1 << 40
        archive._didModify = True


BOMBS = [
    pytest.param(with_member(npy("(1099511627776,)")), "claims the shape", id="terabytes"),
    pytest.param(with_member(npy("(1099511627776,)", version=b"\x02\x00")), "claims the shape", id="version 2"),
    pytest.param(with_member(npy("(4294967296, 4294967296)")), "claims the shape", id="a product above 64 bits"),
    pytest.param(with_member(npy("(-1, -8)", data=bytes(64))), "claims the shape", id="negative"),
    pytest.param(with_member(npy("(1000000000000, 0)")), "claims the shape", id="rows without elements"),
    pytest.param(with_member(npy("(1000000000000,)", descr="'|V0'")), "claims the shape", id="elements without bytes"),
    pytest.param(with_member(npy("(1,)", descr="'|V2000000000'")), "claims the shape", id="a large element"),
    pytest.param(with_member(npy("(1,)", descr="'|O'", data=b"cos\nsystem\n.")), "Object arrays", id="a pickle"),
    pytest.param(with_member(npy("(1,)", version=b"\x03\x00")), "version", id="version 3"),
    pytest.param(with_member(npy("(" * 9000)), "cannot be read", id="deep nesting"),
    pytest.param(with_member(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "array header", id="a header without end"),
    pytest.param(with_member(npy("(1,)", data=bytes(8)), compression=zipfile.ZIP_LZMA), "does not write", id="LZMA"),
    pytest.param(inflating, "expand to 1,073,741", id="inflation"),
    pytest.param(overlapping, "expand to", id="overlapping entries"),
    pytest.param(falsely_sized, "expand to 1,099,511,627,776", id="a false size"),
]


READ_EACH = """
import resource, sys
from pathlib import Path
from trmon.domain.errors import InvalidInput
from trmon.terminal.array_files import read_arrays
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
for path in map(Path, sys.argv[1:]):
    try:
        read_arrays(path)
        print(path, "was read")
    except InvalidInput as refusal:
        print(refusal)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what one process with little memory says of each bomb."""
    folder = tmp_path_factory.mktemp("bombs")
    paths = [folder / f"{place}.npz" for place in range(len(BOMBS))]
    for path, bomb in zip(paths, BOMBS, strict=True):
        bomb.values[0](path)  # type: ignore[operator]
    environment = {"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    script = READ_EACH.format(bytes=MEMORY_BYTES)
    command = [sys.executable, "-c", script, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("place", "reason"), [pytest.param(i, bomb.values[1], id=bomb.id) for i, bomb in enumerate(BOMBS)]
)
def test_a_bomb_is_refused_by_name_within_bounded_memory(refusals: list[str], place: int, reason: str) -> None:
    assert f"{place}.npz: cannot be read: " in refusals[place]
    assert reason in refusals[place]
    assert len(refusals) == len(BOMBS)


def test_arrays_larger_than_the_free_size_are_read_if_the_file_is(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, logits=np.zeros(FREE_BYTES // 8 + 1), mask=np.ones((2, 0)))
    found = read_arrays(path)
    assert (found["logits"].nbytes > FREE_BYTES, found["mask"].shape) == (True, (2, 0))
    assert read_arrays(path, names=["mask"]).keys() == {"mask"}


def valid() -> bytes:
    buffer = io.BytesIO()
    arrays = {"logprobs": np.zeros((2, 3)), "mask": np.asfortranarray(np.ones((2, 3), bool)), "group": np.array(["a"])}
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Reading `.npy`", "ignore:Duplicate name")
@given(
    st.one_of(edited(st.just(valid())), edited(st.just(npy("(1,)", data=bytes(8)))).map(lambda data: repacked(data)))
)
def test_any_file_is_read_or_refused(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        path.write_bytes(data)
        try:
            read_arrays(path)
        except InvalidInput as refusal:
            assert "a.npz: cannot be read: " in str(refusal)  # noqa: PT017 -- a file may also be read


def repacked(member: bytes) -> bytes:
    """Return a .npz file with one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("logprobs.npy", member)
    return buffer.getvalue()
