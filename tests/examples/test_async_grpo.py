"""Two processes: the lag of the rollouts arrives with them."""

import httpx
import pytest

from tests.examples.running_example import batches, run_example

pytestmark = pytest.mark.timeout(600)

STEPS = 10


def test_the_lag_of_the_weights_is_what_the_trainer_saw(client: httpx.Client) -> None:
    printed = run_example(client, "async_grpo", STEPS)
    found = batches(client, "async_grpo", n=STEPS)
    lags = [found[step, None]["signals"]["version_lag_mean"] for step in range(STEPS)]
    assert lags == [float(line.split()[-3]) for line in printed.splitlines() if line.startswith("step")]
    # Two sets of batches with the first weights; then the sampler is one set ahead.
    assert lags == [0.0, 1.0, *[2.0, 3.0] * 4]
    assert {batch["primary_pair"] for batch in found.values()} == {"total"}
