"""Every example ends without a finding on its default settings; those of other frameworks: `tests/peers/examples`."""

import httpx
import pytest

from tests.examples.running_example import TORCHRUN, assert_healthy, batches, run_example

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = 50


@pytest.mark.parametrize(
    ("name", "launcher", "updates"), [("agent_grpo", (), 1), ("async_grpo", (), 1), ("ddp_grpo", TORCHRUN, 2)]
)
def test_an_example_ends_without_a_finding(
    client: httpx.Client, name: str, launcher: tuple[str, ...], updates: int
) -> None:
    run_example(client, name, launcher=launcher)
    batches(client, name, n=STEPS * updates)
    assert_healthy(client, name)
