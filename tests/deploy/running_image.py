"""A started image: its tokens, and a scrape of it."""

from __future__ import annotations

import signal

import httpx

from tests.deploy.image import Container
from tests.fixtures.ports import free_port


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
