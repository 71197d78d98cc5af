"""The examples of other frameworks end without a finding on their default settings."""

import httpx
import pytest

from tests.examples.running_example import TORCHRUN, assert_healthy, batches, run_example

pytestmark = pytest.mark.timeout(900)

STEPS = 50


@pytest.mark.parametrize(
    ("name", "launcher", "updates"), [("accelerate_grpo", TORCHRUN, 2), ("lightning_grpo", (), 4), ("ray_grpo", (), 2)]
)
def test_an_example_ends_without_a_finding(
    service: httpx.Client, name: str, launcher: tuple[str, ...], updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    run_example(service, name, launcher=launcher)
    batches(service, name, n=STEPS * updates)
    assert_healthy(service, name)
