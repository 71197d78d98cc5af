"""The line about the first report: what it contains, what is missing, and which argument would provide it."""

from __future__ import annotations

from collections.abc import Iterable

from trmon_client.config.settings import ClientSettings
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.columns import Columns

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

LOGPROBS = tuple(argument for column, argument in WANTED.items() if column.startswith("sum_logp"))


def first_report_line(settings: ClientSettings, columns: Columns, *, policy: str, step: int) -> str:
    """Return the line without a line break."""
    if not columns.pairs:
        return _line_without_pairs(settings, columns, policy=policy, step=step)
    missing = [argument for column, argument in WANTED.items() if column not in columns]
    if "version_min" in columns and columns.trainer_version is None:
        missing.append("trainer_version=")
    parts = [
        f"{settings.project}/{settings.run} step {step}",
        f"pairs {', '.join(pair for pair in PAIRS if pair in columns.pairs)}",
        f"mode {settings.mode.value}, policy {policy}",
        f"missing: {' '.join(missing)}" if missing else "nothing missing",
        _destination(settings),
    ]
    return "; ".join(parts)


def scalars_only_line(settings: ClientSettings, names: Iterable[str], *, step: int) -> str:
    """Return the line about a trainer that has logged scalars of two steps and no batch, without a line break."""
    parts = [
        f"{settings.project}/{settings.run} step {step}",
        f"scalars only: {', '.join(sorted(map(str, names)))}",
        f"the run is judged by them; agreement of the policies is not measured: pass {' '.join(LOGPROBS)} to log_batch",
        _destination(settings),
    ]
    return "; ".join(parts)


def _line_without_pairs(settings: ClientSettings, columns: Columns, *, policy: str, step: int) -> str:
    given = [argument for column, argument in WANTED.items() if column in columns]
    policies = [argument for argument in given if argument in LOGPROBS]
    parts = [
        f"{settings.project}/{settings.run} step {step}",
        f"nothing to compare: {f'only {policies[0]} is given' if policies else 'no log-probs are given'}, and a pair "
        f"needs two of {' '.join(LOGPROBS)}",
        f"policy {policy} does not apply: every sequence that is not empty is accepted",
        "the run is judged by its scalars, rewards and lengths",
        _destination(settings),
    ]
    return "; ".join(parts)


def _destination(settings: ClientSettings) -> str:
    return settings.page_url or f"no url (TRMON_URL): reports go to {settings.run_spool_dir} for `trmon ingest`"
