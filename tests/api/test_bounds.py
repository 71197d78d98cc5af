"""Error bounds over HTTP; the numbers are the golden ones of formulas, section 7."""

from __future__ import annotations

import httpx
import pytest

PATH = "/api/v1/bounds"


def test_the_bounds_of_a_long_horizon(client: httpx.Client) -> None:
    found = client.get(PATH, params={"horizon": 4096, "kl_max": 1e-4, "kl_seq": 0.01, "budget": 0.5}).json()
    assert found["trpo"] == pytest.approx(1677.3, abs=0.05)
    assert found["pinsker_marginal"] == pytest.approx(34.95, abs=0.005)
    assert found["mixed"] == found["adaptive"] == pytest.approx(8.192)
    assert found["vacuous"] is True
    assert found["max_delta"] == pytest.approx(max(3 * 0.5 / (4 * 4096**1.5), (0.5 / 8192) ** 2 / 0.01))


def test_values_that_json_lacks_are_null_or_strings(client: httpx.Client) -> None:
    found = client.get(PATH, params={"horizon": 10, "kl_max": "inf", "kl_seq": 0}).json()
    assert (found["mixed"], found["trpo"], found["max_delta"]) == ("inf", "inf", None)
    assert client.get(PATH, params={"horizon": 10, "kl_max": "nan", "kl_seq": 1}).json()["adaptive"] is None
