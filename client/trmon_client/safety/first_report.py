"""The line about the first report: what it contains, what is missing, and which argument would provide it."""

from __future__ import annotations

from trmon_client.config.settings import ClientSettings
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import PAIRS

WANTED = {
    "sum_logp_rollout": "rollout_logprobs=",
    "sum_logp_old": "old_logprobs=",
    "sum_logp": "logprobs=",
    "advantage": "advantages=",
    "reward": "rewards=",
    "group_id": "group_ids=",
    "version_min": "versions=",
}
"""The argument of `log_batch` that provides each column."""


def first_report_line(settings: ClientSettings, columns: Columns, *, policy: str, step: int) -> str:
    """Return the line without a line break."""
    missing = [argument for column, argument in WANTED.items() if column not in columns]
    if "version_min" in columns and columns.trainer_version is None:
        missing.append("trainer_version=")
    parts = [
        f"{settings.project}/{settings.run} step {step}",
        f"pairs {', '.join(pair for pair in PAIRS if pair in columns.pairs)}",
        f"mode {settings.mode.value}, policy {policy}",
        f"missing: {' '.join(missing)}" if missing else "nothing missing",
        settings.page_url or f"no url (TRMON_URL): reports go to {settings.run_spool_dir} for `trmon ingest`",
    ]
    return "; ".join(parts)
