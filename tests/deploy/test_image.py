"""The Dockerfile, its entrypoint and its health check, run in the test environment instead of a container."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.deploy.image import COMPOSE, DOCKERFILE, ROOT, SERVICES, Container, Image
from tests.fixtures.ports import free_port
from tests.fixtures.postgres import Postgres
from trmon.config.settings import Settings

pytestmark = pytest.mark.timeout(500)

IMAGE = Image.read()


@pytest.fixture
def container(tmp_path: Path) -> Container:
    container = Container(IMAGE, root=tmp_path, venv=Path(sys.prefix))
    container.prepare()
    return container


def served(container: Container) -> str:
    """Run the image's default command, scrape it as Prometheus does, stop it, and return its metrics."""
    port = free_port()
    process = container.start("serve", "--port", str(port), TRMON_HOST="127.0.0.1")
    try:
        url = f"http://127.0.0.1:{port}"
        assert process.stdout is not None
        assert process.stdout.readline() == f"trmon_url={url}\n"
        assert container.is_healthy(port)
        assert httpx.get(f"{url}/api/v1/runs", timeout=60).status_code == 401
        assert httpx.get(f"{url}/api/v1/runs", headers=shown(container, "admin"), timeout=60).status_code == 200
        metrics = httpx.get(f"{url}/metrics", headers=shown(container, "metrics"), timeout=60).text
    finally:
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM), out + err
    assert token(container, "admin") not in out + err
    return metrics


def token(container: Container, name: str) -> str:
    return (container.within("/run/trmon/tokens") / name).read_text()


def shown(container: Container, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(container, name)}"}


def test_the_first_start_creates_tokens_and_a_later_one_keeps_them_and_replaces_a_lost_one(
    container: Container,
) -> None:
    assert "trmon_info" in served(container)
    tokens = container.within("/run/trmon/tokens")
    made = {path.name: path.read_text() for path in tokens.iterdir()}
    assert made.keys() == {"admin", "trainer", "metrics"}
    assert {name: stat.S_IMODE((tokens / name).stat().st_mode) for name in made} == {
        "admin": 0o600,
        "trainer": 0o600,
        "metrics": 0o644,
    }
    (tokens / "metrics").unlink()
    assert container.run("tokens").returncode == 0
    assert made.pop("metrics") != (tokens / "metrics").read_text()
    assert {name: (tokens / name).read_text() for name in made} == made


def test_secrets_are_created_once(container: Container) -> None:
    def made() -> dict[str, tuple[str, int]]:
        assert container.run("secrets").returncode == 0
        files = [path for name in ("postgres", "grafana") for path in container.within(f"/run/trmon/{name}").iterdir()]
        return {f"{path.parent.name}/{path.name}": (path.read_text(), path.stat().st_mode & 0o777) for path in files}

    first = made()
    assert {name: mode for name, (_, mode) in first.items()} == {
        "postgres/password": 0o644,
        "postgres/pgpass": 0o600,
        "grafana/password": 0o644,
    }
    assert first["postgres/pgpass"][0].strip().endswith(first["postgres/password"][0].strip())
    assert len(first["grafana/password"][0]) > 32
    assert made() == first


def test_other_arguments_run_a_trmon_command(container: Container) -> None:
    done = container.run("--version")
    assert done.returncode == 0
    assert "trmon 0." in done.stdout


def test_the_image_sets_only_known_settings() -> None:
    known = {f"TRMON_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in IMAGE.environment if name.startswith("TRMON_")} <= known
    assert IMAGE.one("EXPOSE") == str(Settings.model_fields["port"].default)
    assert f":{IMAGE.one('EXPOSE')}/readyz" in IMAGE.listed("HEALTHCHECK")[-1]


def test_the_image_runs_as_an_unprivileged_user() -> None:
    user = IMAGE.one("USER")
    assert user.isdigit()
    assert f"--uid {user} " in IMAGE.one("RUN")
    assert set(IMAGE.listed("VOLUME")) <= set(IMAGE.folders)


def test_both_stages_use_the_same_base_which_is_a_build_argument() -> None:
    bases = [stage[0][1].split()[0] for stage in (IMAGE.build, IMAGE.run)]
    assert len(set(bases)) == 1
    assert bases[0] == "${BASE}"
    default = re.search(r"^ARG BASE=(.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert default is not None
    assert COMPOSE["x-trmon"]["build"]["args"] == {"BASE": f"${{TRMON_BASE:-{default[1]}}}"}


def test_the_build_context_contains_exactly_the_copied_files() -> None:
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {name for sources, _ in IMAGE.copied for name in sources} | {"deploy/entrypoint.sh"}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    for script in ("install.sh", "entrypoint.sh"):
        assert os.access(ROOT / "deploy" / script, os.X_OK)


HBA = "host all all 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server owned by the test, so that it may set passwords."""
    with Postgres() as server:
        yield server


@pytest.mark.server("postgres")
def test_a_token_is_created_with_the_generated_password(server: Postgres, container: Container) -> None:
    container.keep_tokens("trainer", "metrics")
    assert container.run("secrets").returncode == 0
    folder = container.within("/run/trmon/postgres")
    place = urlsplit(server.database())
    server.execute(f"ALTER ROLE trmon PASSWORD '{(folder / 'password').read_text().strip()}'")
    server.only(HBA)

    url = SERVICES["tokens"]["environment"]["TRMON_DATABASE_URL"]
    here = url.replace("postgres:5432/trmon", f"127.0.0.1:{place.port}{place.path}").replace(
        "/run/trmon/postgres", str(folder)
    )
    refused = container.run("tokens", TRMON_DATABASE_URL=here)
    assert refused.returncode != 0, "the password file is of another host: the server must ask for a password"
    passfile = folder / "pgpass"
    passfile.write_text(passfile.read_text().replace("postgres:5432:trmon:", f"127.0.0.1:{place.port}:*:"))

    made = container.run("tokens", TRMON_DATABASE_URL=here)
    assert made.returncode == 0, made.stderr
    listed = container.run("token", "list", TRMON_DATABASE_URL=here).stdout
    assert "admin" in listed
    assert not container.within("/var/lib/trmon/trmon.sqlite").exists()
