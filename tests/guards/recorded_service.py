"""One service, as people run it, with five short runs from real clients: what every golden file is recorded from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

import trmon_client as trmon
from tests.fixtures.mail_server import MailServer
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.recorded_runs import RecordedRun
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually

PROJECT = "math"
HEALTHY, DRIFTING, SCALARS, ENFORCED, CRASHED = (
    f"{PROJECT}/{n}" for n in ("well", "drift", "scalars", "enforce", "oom")
)
RUNS = (HEALTHY, DRIFTING, SCALARS, ENFORCED, CRASHED)
N_NOTICES = 4
"""The incidents of the drifting and of the scalar run, how the latter ended, and the crash."""
RULES = """
- name: reward_low
  severity: warn
  when: {signal: reward_mean, below: -1000}
  summary: "{run}: the reward is {value} at step {step}"
  runbook: Look at the reward.
"""


@dataclass(frozen=True)
class RecordedService:
    """A service that has judged all that its runs reported, and what its receivers were sent."""

    process: ServiceProcess
    client: httpx.Client
    webhook: WebhookServer
    mail: MailServer

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.process.url


@contextmanager
def recorded_service(folder: Path) -> Iterator[RecordedService]:
    """Start the service and report the runs; the healthy and the drifting one continue until the context ends."""
    with ExitStack() as stack:
        webhook = stack.enter_context(WebhookServer())
        mail = stack.enter_context(MailServer(security="none"))
        process = ServiceProcess(
            folder,
            webhook_url=webhook.url,
            webhook_secret="whsec_" + "Z3VhcmRz" * 4,
            webhook_allow_hosts="127.0.0.1",
            smtp_host="127.0.0.1",
            smtp_port=str(mail.port),
            smtp_security="none",
            email_from="trmon@example.org",
            email_to="ana@example.org",
            public_url="http://127.0.0.1:8642",
            log_level="error",
            # The newest steps of the runs that continue are never judged, however long recording takes.
            grace_seconds="36000",
            stall_floor_seconds="36000",
        )
        stack.callback(process.stop)
        client = stack.enter_context(process.client())
        _report(client, process.url, stack, n_told=lambda: min(len(webhook.posted), len(mail.received)))
        yield RecordedService(process, client, webhook, mail)


def _report(client: httpx.Client, url: str, stack: ExitStack, *, n_told: Callable[[], int]) -> None:
    def monitor(run: str, **options: Any) -> trmon.Monitor:
        config = {"lr": 1e-6, "engine": {"name": "vllm", "dtype": "bf16"}}
        name = run.removeprefix(f"{PROJECT}/")
        return trmon.init(project=PROJECT, run=name, url=url, attempt="first", config=config, **options)

    for run, recording, n_steps in ((HEALTHY, "healthy", 20), (DRIFTING, "stale", 36)):
        staying = stack.enter_context(monitor(run, owner="ana", tags=["dapo"]))
        _replay(client, staying, run, recording, n_steps)
    with monitor(ENFORCED, owner="ben", mode="enforce", policy="trm_max") as enforcing:
        _replay(client, enforcing, ENFORCED, "stale", n_steps=8)
    with monitor(SCALARS) as plain:
        for step in range(30):
            plain.log_scalars(
                step, {"reward_mean": 0.5 - step / 100, "grad_norm": 1.0 + step % 3, "entropy": 2 - step / 20}
            )
        # The notifications of a run differ where it ends before that of its incident is sent.
        _wait_for_step(client, SCALARS, 28)
        eventually(lambda: n_told() == N_NOTICES - 2)
    with suppress(MemoryError), monitor(CRASHED, owner="ana") as crashing:
        _replay(client, crashing, CRASHED, "healthy", n_steps=3)
        raise MemoryError("CUDA out of memory")
    for run, state in ((ENFORCED, "finished"), (SCALARS, "finished"), (CRASHED, "crashed")):
        eventually(
            lambda run=run: client.get(f"/api/v1/runs/{run}").json().get("state"), lambda now, state=state: now == state
        )
    eventually(lambda: n_told() == N_NOTICES)


def _replay(client: httpx.Client, monitor: trmon.Monitor, run: str, recording: str, n_steps: int = 1000) -> None:
    """Make the calls of a recording, its scalars with the batches: which batch takes later ones is a race."""
    recorded = RecordedRun.load(recording)
    for step in recorded.replay(SimpleNamespace(log_batch=monitor.log_batch, log_scalars=lambda *_: None)):
        if (step + 1) % 10 == 0 or step + 1 in (n_steps, recorded.n_steps):
            _wait_for_step(client, run, step)
        if step + 1 == n_steps:
            return


def _wait_for_step(client: httpx.Client, run: str, step: int) -> None:
    eventually(
        lambda: client.get(f"/api/v1/runs/{run}/batches", params={"limit": 1}).json().get("items"),
        lambda items: bool(items) and items[0]["step"] == step,
    )
