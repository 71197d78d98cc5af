"""The containers and jobs of deploy/kubernetes, run in the test environment with their commands and settings."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.deploy.image import Container, Image
from tests.deploy.manifests import SECRETS, Json, containers, pod_of
from tests.deploy.test_kubernetes_components import job_pods
from tests.fixtures import postgres
from tests.fixtures.ports import free_port
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import Redis
from tests.fixtures.waiting import eventually
from tests.store.builders import append, report_intake, start_intake, stored_reports
from trmon.store import Store

pytestmark = pytest.mark.timeout(500)

NAME = "trmon.example"


@dataclass(frozen=True)
class Pod:
    """A pod's template, and the folder in place of the root of its containers."""

    template: Json
    container: Container
    port: int

    @classmethod
    def of(cls, template: Json, root: Path) -> Pod:
        return cls(template, Container(Image.read(), root=root, venv=Path(sys.prefix)), free_port())

    @property
    def main(self) -> Json:
        """The container that runs as long as the pod."""
        [main] = self.template["spec"]["containers"]
        return dict(main)

    def settings(self, container: Json) -> dict[str, str]:
        """Return a container's settings, on loopback under a name that the service must be told."""
        secrets = {
            variable["name"]: variable["value"].replace(SECRETS, str(self.container.within(SECRETS)))
            for variable in container.get("env", ())
        }
        return {**secrets, "TRMON_HOST": "127.0.0.1", "TRMON_PORT": str(self.port), "TRMON_ALLOW_HOSTS": NAME}

    @property
    def startup_seconds(self) -> float:
        """How long the kubelet waits for the main container to answer."""
        probe = self.main["startupProbe"]
        return float(probe["periodSeconds"] * probe["failureThreshold"])

    def migrate(self) -> None:
        [container] = self.template["spec"]["initContainers"]
        done = self.container.run(*container["args"], program=program_of(container), **self.settings(container))
        assert done.returncode == 0, done.stderr

    def start(self) -> subprocess.Popen[str]:
        [named] = self.main["ports"]
        arguments = [argument.replace(str(named["containerPort"]), str(self.port)) for argument in self.main["args"]]
        return self.container.start(*arguments, program=program_of(self.main), **self.settings(self.main))

    def passes(self, probe: str) -> bool:
        """Ask what the kubelet asks; it takes any status from 200 to 399 as success."""
        asked = self.main[f"{probe}Probe"]["httpGet"]
        headers = {header["name"]: header["value"] for header in asked.get("httpHeaders", ())}
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}{asked['path']}", headers=headers, timeout=6.0)
        except httpx.TransportError:
            return False
        return 200 <= answer.status_code < 400

    def metrics(self, token: str) -> str:
        headers = {"Authorization": f"Bearer {token}", "Host": NAME}
        answer = httpx.get(f"http://127.0.0.1:{self.port}/metrics", headers=headers, timeout=60.0)
        assert answer.status_code == 200, answer.text
        return answer.text

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the main container until the block ends, as the kubelet does: start it, probe it, and send SIGTERM."""
        process = self.start()
        try:
            for probe in ("startup", "liveness", "readiness"):
                eventually(
                    lambda probe=probe: process.poll() is not None or self.passes(probe),
                    timeout_seconds=self.startup_seconds,
                )
            assert process.poll() is None
            yield
        finally:
            process.terminate()
            _, err = process.communicate(timeout=self.template["spec"]["terminationGracePeriodSeconds"])
        assert process.returncode in (0, -15), err


def program_of(container: Json) -> str | None:
    """Return what a container runs in place of the image's entrypoint."""
    command = container.get("command")
    return None if command is None else " ".join(command)


def test_the_embedded_pod_migrates_serves_and_makes_a_token(tmp_path: Path) -> None:
    pod = Pod.of(pod_of("embedded", "trmon"), tmp_path)
    pod.container.prepare()
    pod.container.keep_tokens("trainer", "metrics")
    pod.migrate()
    with pod.running():
        assert pod.metrics(pod.container.within("/run/trmon/tokens/admin").read_text())


@pytest.mark.server("postgres", "redis-server")
def test_a_fleet_starts_as_documented(postgres_server: Postgres, tmp_path: Path) -> None:
    api, worker = (Pod.of(pod_of("fleet", name), tmp_path) for name in ("trmon", "trmon-worker"))
    api.container.prepare()
    secrets = api.container.within(SECRETS)
    secrets.mkdir(parents=True)
    with Redis() as redis:
        (secrets / "database_url").write_text(f"{postgres_server.database()}\n")
        (secrets / "redis_url").write_text(f"{redis.url}\n")
        with ThreadPoolExecutor() as threads:
            list(threads.map(Pod.migrate, (api, worker)))
        with worker.running():
            refused = api.start()
            _, reason = refused.communicate(timeout=100)
            assert refused.returncode != 0
            assert "trmon token create" in reason
            made = worker.container.run(
                *("token", "create", "admin", "--scope", "admin"), program="trmon", **worker.settings(worker.main)
            )
            assert made.returncode == 0, made.stderr
            with api.running():
                assert "trmon_redis_up 1.0" in api.metrics(made.stdout.strip())
    assert not any(api.container.within("/var/lib/trmon").iterdir())
    assert not any(api.container.within("/run/trmon/tokens").iterdir())


UID = 10001
BACKUP = "/backup"
SQLITE = {"TRMON_DATA_DIR": Image.read().environment["TRMON_DATA_DIR"]}


def run_job(overlay: str, name: str, root: Path) -> None:
    """Run the containers of a job in order, in folders in place of its volumes; raises for the first that fails.

    A container of PostgreSQL runs as the pod's user, of whom the machine knows no name.
    """
    [pod] = [pod for known, pod in job_pods(overlay) if known == name]
    for container in containers(pod):
        is_ours = container["image"].startswith("trmon:")
        _run(container, root, uid=None if is_ours or os.geteuid() else UID, environment=SQLITE if is_ours else {})


def _run(container: Json, root: Path, *, uid: int | None, environment: dict[str, str]) -> None:
    folders = "|".join(mount["mountPath"] for mount in container["volumeMounts"])
    given = environment | {variable["name"]: variable["value"] for variable in container.get("env", ())}

    def here(text: str) -> str:
        return re.sub(folders, lambda found: f"{root}{found[0]}", text)

    done = subprocess.run(
        [here(word) for word in (*container["command"], *container.get("args", ()))],
        env={
            "PATH": f"{Path(sys.prefix) / 'bin'}:{postgres.binaries()}:/usr/bin:/bin",
            **{name: here(value) for name, value in given.items()},
        },
        user=uid,
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def volume(root: Path, path: str) -> Path:
    """Make a folder in place of a volume, which its pod may write to."""
    folder = Path(f"{root}{path}")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    for above in folder.relative_to(root).parents:
        (root / above).chmod(0o755)
    return folder


def fill(url: str) -> None:
    store = Store.open(url)
    store.migrate()
    append(store, start_intake(), *(report_intake(step=step) for step in range(3)))
    store.close()


def add(url: str, *, step: int) -> None:
    store = Store.open(url)
    append(store, report_intake(step=step))
    store.close()


def steps(url: str) -> list[int]:
    store = Store.open(url)
    store.check()
    found = [stored.report.step for stored in stored_reports(store, 1)]
    store.close()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder in place of a pod's root, which every user may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


@pytest.mark.server("postgres")
def test_a_fleet_is_restored_from_the_dump_of_its_job(postgres_server: Postgres, root: Path) -> None:
    backups, secrets = volume(root, BACKUP), volume(root, SECRETS)
    used, empty = postgres_server.database(), postgres_server.database()
    fill(used)
    (secrets / "database_url").write_text(used.replace("postgresql:", "postgresql+psycopg:") + "\n")
    run_job("fleet", "trmon-backup", root)
    add(used, step=3)
    [dump] = backups.iterdir()
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600

    with pytest.raises(RuntimeError, match="already exists"):
        run_job("fleet", "trmon-restore", root)
    assert steps(used) == [0, 1, 2, 3]
    (secrets / "database_url").write_text(empty)
    run_job("fleet", "trmon-restore", root)
    assert steps(empty) == [0, 1, 2]
    add(empty, step=4)
    for url in (used, empty):
        postgres_server.drop(url)


@pytest.mark.server("postgres")
def test_a_dump_that_fails_leaves_the_last_one(postgres_server: Postgres, root: Path) -> None:
    backups, secrets = volume(root, BACKUP), volume(root, SECRETS)
    used = postgres_server.database()
    fill(used)
    (secrets / "database_url").write_text(used)
    run_job("fleet", "trmon-backup", root)
    [dump] = backups.iterdir()
    before = dump.read_bytes()
    postgres_server.drop(used)
    with pytest.raises(RuntimeError, match="does not exist"):
        run_job("fleet", "trmon-backup", root)
    assert dump.read_bytes() == before


def test_an_embedded_service_is_restored_from_the_copy_of_its_job(root: Path) -> None:
    backups, data = volume(root, BACKUP), volume(root, SQLITE["TRMON_DATA_DIR"])
    url = f"sqlite:///{data}/trmon.sqlite"
    fill(url)
    run_job("embedded", "trmon-backup", root)
    add(url, step=3)
    [copy] = backups.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    run_job("embedded", "trmon-backup", root)  # as on the same day of the next week
    assert list(backups.iterdir()) == [copy]
    add(url, step=4)
    run_job("embedded", "trmon-restore", root)
    assert steps(url) == [0, 1, 2, 3]
    assert steps(f"{url}.replaced-1") == [0, 1, 2, 3, 4]
