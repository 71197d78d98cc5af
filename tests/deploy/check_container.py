"""Builds the image and runs it, without an engine; started by `make image-check` as root, since it downloads much."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.image import ROOT
from tests.fixtures.messages import report
from tests.fixtures.ports import free_port
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
OF_THE_BASE = "python3,python3-venv,ca-certificates"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As Debian's own images have it."""
PIP_OPTIONS = ("cert", "index-url", "extra-index-url", "proxy", "trusted-host", "default-timeout")


class Buildah:
    """A separate store of images below a folder, deleted with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "storage.conf"
        config.write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n')
        self._environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(config), "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *arguments: str | Path) -> str:
        """Run a command of buildah and return its output. Errors: AssertionError with the end of what it said."""
        command = ["buildah", *map(str, arguments)]
        done = subprocess.run(command, env=self._environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def make_base(self, name: str) -> None:
        """Make an image of Debian with Python."""
        root = self.folder / "base"
        _run("debootstrap", "--variant=minbase", f"--include={OF_THE_BASE}", SUITE, root, _mirror())
        container = self("from", "scratch")
        self("copy", "-q", container, root, "/")
        self("config", "--env", f"PATH={PATH}", "--cmd", "/bin/sh", container)
        self("commit", "-q", "--rm", container, name)

    def build(self, dockerfile: Path, name: str, *, base: str, context: Path) -> None:
        volumes = [f"--volume={path}:{inside}:ro" for path, inside in self._pip_files()]
        self("bud", "--format=docker", "-f", dockerfile, f"--build-arg=BASE={base}", *volumes, "-t", name, context)

    def config_of(self, image: str) -> dict[str, Any]:
        """Return the configuration of an image: user, entrypoint, command, environment, volumes."""
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]
        return found

    @contextmanager
    def running(
        self,
        container: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        volume: tuple[Path, str],
        user: str,
    ) -> Iterator[subprocess.Popen[bytes]]:
        given = [f"--env={name}={value}" for name, value in environment.items()]
        folder, inside = volume
        arguments = ["run", f"--user={user}", f"--volume={folder}:{inside}", *given, container, "--", *command]
        process = subprocess.Popen(["buildah", *arguments], env=self._environment)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60.0)

    def _pip_files(self) -> list[tuple[Path, str]]:
        """Return the files that pip needs inside, with their places there: its configuration and its certificates."""
        listed = dict(re.findall(r"^[\w:.]+\.([\w-]+)='(.*)'$", _run("pip", "config", "list"), re.MULTILINE))
        options = {name: value for name, value in listed.items() if name in PIP_OPTIONS and "file:" not in value}
        config = self.folder / "pip.conf"
        config.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
        certificates = [Path(options["cert"])] if "cert" in options else []
        return [(config, "/etc/pip.conf"), *((path, str(path)) for path in certificates)]


def _mirror() -> str:
    """Return this machine's mirror of Debian, which may be a nearer one; not that of another vendor."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text(errors="replace") for path in sources if path.is_file())
    found = re.findall(r"https?://[\w.:-]+(?:/[\w.-]+)*/debian(?=/?[\s\n])", text)
    return found[0] if found else MIRROR


def _run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


BASE, IMAGE = "localhost/trmon-base:check", "localhost/trmon:check"
UID = 10001
DATA = "/var/lib/trmon"

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))),
        reason="needs root, buildah and debootstrap: apt-get install buildah debootstrap",
    ),
]


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """A store with the image, built from deploy/Dockerfile."""
    folder = tmp_path_factory.mktemp("buildah")
    buildah = Buildah(folder)
    buildah.make_base(BASE)
    buildah.build(ROOT / "deploy" / "Dockerfile", IMAGE, base=BASE, context=ROOT)
    yield buildah
    shutil.rmtree(folder)


def test_the_built_image_runs_unprivileged_with_its_entrypoint(buildah: Buildah) -> None:
    config = buildah.config_of(IMAGE)
    assert config["User"] == str(UID)
    assert config["Entrypoint"] == ["/usr/local/bin/entrypoint.sh"]
    assert config["Cmd"] == ["serve"]
    assert DATA in config["Volumes"]


def test_the_container_serves_and_keeps_its_data_over_a_restart(buildah: Buildah, tmp_path: Path) -> None:
    container = buildah("from", IMAGE)
    config = buildah.config_of(IMAGE)
    data, port = tmp_path / "data", free_port()
    data.mkdir()
    os.chown(data, UID, UID)
    url = f"http://127.0.0.1:{port}"
    environment = {"TRMON_HOST": "127.0.0.1", "TRMON_PORT": str(port)}
    command = [*config["Entrypoint"], *config["Cmd"]]

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def headers_of(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {buildah('run', container, '--', 'cat', f'/run/trmon/tokens/{token}')}"}

    for is_first in (True, False):
        with buildah.running(
            container, command, environment=environment, volume=(data, DATA), user=str(UID)
        ) as process:
            eventually(is_ready)
            assert process.poll() is None
            assert (data / "trmon.sqlite").stat().st_uid == UID
            if is_first:
                content = wire.encode_bundle([wire.encode(report(project="math", run="boxed"))])
                headers = {"Content-Type": wire.MSGPACK, **headers_of("trainer")}
                httpx.post(f"{url}/api/v1/reports", content=content, headers=headers).raise_for_status()
            listed = httpx.get(f"{url}/api/v1/runs", headers=headers_of("admin")).raise_for_status().json()["items"]
            assert [run["run"] for run in listed] == ["boxed"]
            check = [part.replace("8642", str(port)) for part in config["Healthcheck"]["Test"][1:]]
            buildah("run", f"--user={UID}", container, "--", *check)
    with pytest.raises(AssertionError):
        buildah("run", f"--user={UID}", container, "--", *check)


def test_the_image_has_no_compiler_no_tests_and_no_secrets(buildah: Buildah) -> None:
    container = buildah("from", IMAGE)
    found = buildah(
        "run", container, "--", "sh", "-c", "ls /opt/trmon/lib/python3*/site-packages; ls -A /run/trmon/*; ls /"
    )
    assert "trmon" in found
    for unwanted in ("torch", "pytest", "tests", "src"):
        assert unwanted not in found.split()
    assert buildah("run", container, "--", "sh", "-c", "command -v gcc || echo none") == "none"
