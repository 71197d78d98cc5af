"""Pass contexts, rules and closing batches for tests of the pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import stored
from trmon.domain.batches.assembly import Assembly
from trmon.domain.findings.catalogue import Catalogue
from trmon.domain.pipeline.merge import ClosingBatch
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules import rule_yaml
from trmon.domain.rules.rule import RuleSet
from trmon_client.core import wire


def pass_context(*, rules: RuleSet | None = None, run: dict[str, Any] | None = None, **changed: Any) -> PassContext:
    """Return a context with the default policies, the built-in rules and one receiver; `run` are fields of its run."""
    usual: dict[str, Any] = {
        "run": replace(MemoryLog().stored_run, **run or {}),
        "policies": PolicyRegistry.of(default_version(now=0.0)),
        "rules": rules or rule_yaml.builtin_rules(),
        "receivers": ("hook",),
        "now": 1000.0,
    }
    return PassContext(**usual | changed)


def parse_rules(text: str) -> RuleSet:
    """Return the rules in a YAML list alone, without any finding."""
    return rule_yaml.overlay_rules(RuleSet((), Catalogue((), {})), text)


def closing(
    *reports: wire.Report, pipeline_state: PipelineState | None = None, context: PassContext | None = None
) -> ClosingBatch:
    batch = Assembly().reopen(stored(report, id_=i + 1) for i, report in enumerate(reports))
    return ClosingBatch(
        context=context or pass_context(), pipeline_state=pipeline_state or PipelineState(), batch=batch
    )
