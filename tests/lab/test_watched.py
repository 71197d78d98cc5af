"""A lab run reports a name or an address that the client rejects."""

from __future__ import annotations

import pytest

from trmon.domain.errors import InvalidInput
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.train_watched import train_watched


@pytest.mark.parametrize(
    ("name", "url", "named"), [("a b", None, r"run \(TRMON_RUN\)"), ("a", "nonsense", r"url \(TRMON_URL\)")]
)
def test_an_invalid_client_setting_is_reported_by_its_variable(name: str, url: str | None, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        next(train_watched(LabConfig.healthy(0), url=url, project="lab", name=name))
