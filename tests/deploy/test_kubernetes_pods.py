"""The containers of deploy/kubernetes, run in the test environment with their commands, settings and probes."""

from __future__ import annotations

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
from tests.deploy.manifests import SECRETS, Json, pod_of
from tests.fixtures.ports import free_port
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import Redis
from tests.fixtures.waiting import eventually

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
