"""Batches on their way through the pipeline."""

from __future__ import annotations

from typing import Any

from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import stored
from trmon.domain.batches.assembly import seen_again
from trmon.domain.context.pass_context import Watch
from trmon.domain.policies.policy_registry import PolicyBook
from trmon.domain.policies.policy_version import default_version
from trmon.domain.rules import rule_yaml
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_set import RuleSet
from trmon.domain.stages.merge import Closing
from trmon.domain.state.pipeline_state import RunMind
from trmon_client.core import wire


def watch(*, rules: tuple[Rule, ...] | None = None, **changed: Any) -> Watch:
    """Return what a run is watched with: the default policies, the built-in rules, one receiver."""
    usual: dict[str, Any] = {
        "run": MemoryLog().stored_run,
        "policies": PolicyBook.of(default_version(now=0.0)),
        "rules": RuleSet(rule_yaml.builtin() if rules is None else rules),
        "receivers": ("hook",),
        "public_url": None,
        "now": 1000.0,
    }
    return Watch(**usual | changed)


def closing(*reports: wire.Report, mind: RunMind | None = None, watched: Watch | None = None) -> Closing:
    """Return a batch of these reports whose time has come."""
    batch = seen_again(stored(report, id_=i + 1) for i, report in enumerate(reports))
    return Closing(watch=watched or watch(), mind=mind or RunMind(), batch=batch)
