"""Builds the image and runs it, without an engine; started by `make image-check` as root, since it downloads much."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.buildah import Buildah
from tests.deploy.image import ROOT
from tests.fixtures.messages import report
from tests.fixtures.ports import free_port
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

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
