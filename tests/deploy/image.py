"""Performs the steps of the Dockerfile without a container engine, in a folder in place of the root; reads compose."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
VENV = "/opt/trmon"

Instruction = tuple[str, str]
"""An instruction of the Dockerfile and its arguments."""


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, in order; continued lines are one."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    found: list[list[Instruction]] = []
    for word, _, rest in (line.partition(" ") for line in lines):
        if word == "FROM":
            found.append([])
        if word == "ARG" and not found:
            continue
        found[-1].append((word, rest.strip()))
    return found


@dataclass(frozen=True)
class Image:
    """The Dockerfile: a build stage and a final stage."""

    build: list[Instruction]
    run: list[Instruction]

    @classmethod
    def read(cls) -> Image:
        return cls(*stages(DOCKERFILE.read_text()))

    def one(self, word: str) -> str:
        """Return the arguments of the only such instruction of the final stage."""
        [said] = [rest for found, rest in self.run if found == word]
        return said

    def listed(self, word: str) -> list[str]:
        """Return an instruction in its exec form."""
        said: list[str] = json.loads(self.one(word).partition("CMD ")[2] if word == "HEALTHCHECK" else self.one(word))
        return said

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in shlex.split(self.one("ENV")))

    @property
    def copied(self) -> list[tuple[list[str], str]]:
        """The files copied from the repository by the build stage: sources and destination."""
        words = [shlex.split(rest) for word, rest in self.build if word == "COPY"]
        return [(sources, target) for *sources, target in words]

    @property
    def folders(self) -> list[str]:
        """The folders that belong to the user."""
        return re.findall(r"(?<= )/(?:var|run)\S*", self.one("RUN"))


def install(image: Image, folder: Path) -> Path:
    """Build as the first stage does, from only the files it copies; return the virtual environment."""
    venv = folder / VENV.strip("/")
    build(image, source=copied(image, folder), venv=venv)
    return venv


def copied(image: Image, folder: Path) -> Path:
    """Copy the files of the build stage into a folder; return the folder they lie in."""
    source = folder / "src"
    for sources, target in image.copied:
        for name in sources:
            place = source / (name if Path(target).name in ("", ".") and target != name else target)
            _copy(ROOT / name, source / target / Path(name).name if target.endswith("/") else place)
    return source


def build(image: Image, *, source: Path, venv: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    [step] = [rest for word, rest in image.build if word == "RUN"]
    command = shlex.split(step.replace(VENV, str(venv)))
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(command, cwd=source, env=environment, check=check, capture_output=True, text=True)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


@dataclass(frozen=True)
class Container:
    """A root folder with the image's folders and a virtual environment with trmon."""

    image: Image
    root: Path
    venv: Path

    def prepare(self) -> None:
        for path in self.image.folders:
            self.within(path).mkdir(parents=True)

    def keep_tokens(self, *names: str) -> None:
        """Put files of earlier tokens there, of which the entrypoint makes no others."""
        folder = self.within("/run/trmon/tokens")
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_text("made earlier")

    def within(self, path: str) -> Path:
        """Return the local path of a path in the container."""
        return self.root / path.strip("/")

    def start(self, *command: str, program: str | None = None, **environment: str) -> subprocess.Popen[str]:
        """Run a command, by default the image's own, through a program or the entrypoint; settings may be given."""
        [entrypoint] = self.image.listed("ENTRYPOINT")
        script = ROOT / "deploy" / Path(entrypoint).name
        words = command or tuple(self.image.listed("CMD"))
        return subprocess.Popen(
            [program or str(script), *words],
            env=self._environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, program: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, program=program, **environment)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def is_healthy(self, port: int) -> bool:
        program, *rest = self.image.listed("HEALTHCHECK")
        asked = [part.replace(":8642", f":{port}") for part in rest]
        checked = [str(self.venv / "bin" / program), *asked]
        return subprocess.run(checked, capture_output=True, check=False).returncode == 0

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        folders = sorted(self.image.folders, key=len)
        own = {
            name: str(self.within(value)) if any(folder.startswith(value) for folder in folders) else value
            for name, value in self.image.environment.items()
        }
        path = f"{self.venv / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        is_ours = self.venv == Path(sys.prefix)
        python_path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if is_ours and "PYTHONPATH" in os.environ else {}
        return {**own, **python_path, "PATH": path, "HOME": str(self.root), **given}


Json = dict[str, Any]

FILE = ROOT / "deploy" / "compose.yaml"
COMPOSE: Json = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Json] = COMPOSE["services"]


def assert_of_schema(schema: str, *files: Path) -> None:
    """Check files against a schema that check-jsonschema brings."""
    from check_jsonschema import main

    checked = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, files)])
    assert checked.exit_code == 0, checked.output
