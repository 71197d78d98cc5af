"""The first start of the fleet profile: passwords, then tokens in a real PostgreSQL that requires a password."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.deploy.compose import SERVICES
from tests.deploy.image import Container, Image
from tests.fixtures.postgres import Postgres

pytestmark = [pytest.mark.server("postgres"), pytest.mark.timeout(500)]

HBA = "host all all 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server owned by the test, so that it may set passwords."""
    with Postgres() as server:
        yield server


def test_a_token_is_created_with_the_generated_password(server: Postgres, tmp_path: Path) -> None:
    container = Container(Image.read(), root=tmp_path, venv=Path(sys.prefix))
    container.prepare()
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
