"""Every tool, in the order in which an assistant sees them."""

from __future__ import annotations

from collections.abc import Callable

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.tools.alerts import list_alerts_tool, list_notes_tool
from trmon.assistants.tools.budget import run_budget_tool
from trmon.assistants.tools.comparison import compare_runs_tool
from trmon.assistants.tools.diagnosis import collapse_risk_tool, diagnose_run_tool
from trmon.assistants.tools.explanation import explain_tool
from trmon.assistants.tools.runs import describe_run_tool, list_runs_tool
from trmon.assistants.tools.sequences import worst_sequences_tool
from trmon.assistants.tools.signals import list_signal_names_tool, read_signals_tool
from trmon.assistants.tools.whatif import what_if_policy_tool

ToolFunction = Callable[..., ToolAnswer]
"""Takes a service, then what the model gives; its docstring and annotations are what the model is told."""

TOOLS: dict[str, ToolFunction] = {
    "list_runs": list_runs_tool,
    "diagnose_run": diagnose_run_tool,
    "describe_run": describe_run_tool,
    "list_signal_names": list_signal_names_tool,
    "read_signals": read_signals_tool,
    "worst_sequences": worst_sequences_tool,
    "list_alerts": list_alerts_tool,
    "list_notes": list_notes_tool,
    "compare_runs": compare_runs_tool,
    "what_if_policy": what_if_policy_tool,
    "run_budget": run_budget_tool,
    "collapse_risk": collapse_risk_tool,
    "explain": explain_tool,
}
