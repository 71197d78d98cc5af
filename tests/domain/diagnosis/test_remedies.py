"""Remedies: every finding has one, for both frameworks."""

from __future__ import annotations

import pytest

from trmon.domain.diagnosis import REMEDIES, Finding


def test_every_finding_that_can_be_found_has_a_remedy() -> None:
    assert REMEDIES.keys() == set(Finding) - {Finding.HEALTHY, Finding.UNKNOWN}


@pytest.mark.parametrize("finding", REMEDIES, ids=lambda finding: finding.value)
def test_a_remedy_says_what_to_change_and_what_if_that_does_not_help(finding: Finding) -> None:
    remedy = REMEDIES[finding]
    assert remedy.fix.endswith(".")
    assert remedy.persists.endswith(".")
    assert remedy.verl
    assert remedy.trl
