"""What holds for every test: those that need a server that this machine lacks say so and do not run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog

from tests.fixtures import postgres
from tests.fixtures.postgres import Postgres
from trmon.store import Store

pytest_plugins = ["tests.fixtures.fuzzing", "tests.fixtures.running_service"]

TESTS = Path(__file__).parent

PACKAGES = {
    "chromium": "chromium",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "systemd-analyze": "systemd",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "tmux": "tmux",
    "postgres": "postgresql",
    "redis-server": "redis-server",
    "nginx": "nginx",
    "caddy": "caddy",
    "kubectl": "kubernetes-client",
}
"""Debian's package of each binary."""

# No test asserts a time, and an example's deadline is one, as is how long the generation of examples may take.
FUZZING = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("fuzzing", FUZZING)
hypothesis.settings.register_profile("the same examples in each run", FUZZING, derandomize=True)

# Threads of OpenMP spin while they wait for each other, which costs several times what small tensors take.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background job ignores SIGINT, and so would the trainers that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# structlog's default draws a traceback with the locals of each frame, which takes a second of CPU.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ],
    # As a service does; on standard output, its lines would be among those of a command that a test runs.
    logger_factory=structlog.WriteLoggerFactory(file=sys.__stderr__),
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples of Hypothesis: `make fuzz` looks for new ones, and a test says the same twice."""
    profile = "fuzzing" if config.getoption("fuzz_seconds") else "the same examples in each run"
    hypothesis.settings.load_profile(profile)


SLOW = (
    "api/test_lake.py",
    "assistants/",
    "bootstrap/test_peers.py",
    "bootstrap/test_workers.py",
    "cli/",
    "client/test_advice.py",
    "dashboards/",
    "deploy/",
    "docs/test_operations.py",
    "e2e/",
    "examples/",
    "fleet/",
    "fuzz/",
    "grafana/",
    "lab/",
    "notify/test_outage.py",
    "proof/",
    "protocol/",
    "research/",
    "store/lake/test_history.py",
    "store/lake/test_mover.py",
    "store/test_query.py",
    "store/test_redis.py",
    "store/maintenance/test_backup.py",
    "store/test_durability.py",
    "web/",
    "worker/test_process.py",
)
"""What only `make test-all` runs: processes, browsers, other people's servers, training, proofs and faults."""
QUICK = ("e2e/test_two_trainers.py", "examples/test_readme.py", "web/test_assets.py")
"""Of these, what `make test` runs as well: among it one path from end to end."""

LONGEST = ("e2e/test_online_upgrade.py", "e2e/test_demo.py")
"""What runs first: a file runs in one process, and one that began last would run for minutes beside an idle core."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, let the longest run first, and skip tests whose server is not installed.

    A test is marked `server("binary", ...)`; `make test-deps` installs the binaries.
    """
    items.sort(key=lambda item: _path(item) not in LONGEST)
    for item in items:
        path = _path(item)
        if path.startswith(SLOW) and path not in QUICK:
            item.add_marker(pytest.mark.slow)
        for marker in item.iter_markers("server"):
            missing = [binary for binary in marker.args if not _is_here(binary)]
            if missing:
                packages = " ".join(sorted({PACKAGES[binary] for binary in missing}))
                item.add_marker(pytest.mark.skip(f"no {', '.join(missing)} here; as root: apt-get install {packages}"))


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _is_here(binary: str) -> bool:
    return (postgres.binaries() if binary == "postgres" else shutil.which(binary)) is not None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL that lasts as long as the session; tests take databases of their own."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: Postgres) -> str:
    """The URL of a migrated database, to be copied."""
    url = postgres_server.database()
    store = Store.open(url)
    store.migrate()
    store.close()
    return url


@pytest.fixture
def postgres_url(postgres_server: Postgres, postgres_template: str) -> Iterator[str]:
    """The URL of a migrated, empty database for one test."""
    url = postgres_server.borrow(postgres_template)
    yield url
    postgres_server.give_back(url)
