"""Images without an engine: Debian's buildah builds and runs them in a chroot, over a base that debootstrap makes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
