"""Sends what the service finds to the tracker that a run already uses: a gauge a finding, in a thread of its own."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

from trmon_client.error_guard import ErrorGuard

GAUGE = "trmon/"
"""The start of a gauge's name, before its finding."""
LEVELS = {"warn": 1.0, "page": 2.0}
"""The value of a gauge by the severity of its finding; 0 once it is over."""
PAGE = "page"
MAX_WAITING = 256


class _Wandb:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, gauges: Mapping[str, float], step: int) -> None:
        # Without a commit they belong to the row that the trainer writes next, whose steps stay its own.
        self._run.log({**gauges, f"{GAUGE}judged_step": step}, commit=False)

    def alert(self, title: str, text: str) -> None:
        self._run.alert(title=title, text=text, level="ERROR")


class _MLflow:
    def __init__(self, mlflow: Any, run: Any) -> None:
        self._client, self._run_id = mlflow.MlflowClient(), run.info.run_id
        self._metric = mlflow.entities.Metric

    def log(self, gauges: Mapping[str, float], step: int) -> None:
        metrics = [self._metric(name, value, 0, step) for name, value in gauges.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def alert(self, title: str, text: str) -> None:
        self._client.set_tag(self._run_id, "trmon.page", f"{title}\n{text}")


class _TensorBoard:
    def __init__(self, folder: str) -> None:
        self._writer = import_module("torch.utils.tensorboard").SummaryWriter(folder, filename_suffix=".trmon")
        self._step = 0

    def log(self, gauges: Mapping[str, float], step: int) -> None:
        self._step = step
        for name, value in gauges.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def alert(self, title: str, text: str) -> None:
        self._writer.add_text(f"{GAUGE}page", f"{title}\n\n{text}", self._step)
        self._writer.flush()


Tracker: TypeAlias = _Wandb | _MLflow | _TensorBoard
"""A run of a tracker: `log` writes the gauges of a judged step, `alert` tells people of a page, if the tracker can."""


def find_tracker(name: str) -> Tracker | None:
    """Return the run that a tracker has in this thread, None before it has one. Args: name: of `ClientSettings`."""
    kind, _, folder = name.partition(":")
    if kind == "tensorboard":
        return _TensorBoard(folder)
    module = sys.modules.get(kind)
    if module is None:
        return None
    if kind == "wandb":
        return None if module.run is None else _Wandb(module.run)
    run = module.active_run()
    return None if run is None else _MLflow(module, run)


class FindingsTracker:
    """Found in the trainer's thread, told in the uploader's, written in its own; a failure is said once and ends it."""

    def __init__(self, name: str, error_guard: ErrorGuard) -> None:
        self._name = name
        self._error_guard = error_guard
        self._tracker: Tracker | None = None
        self._waiting: deque[Mapping[str, Any] | None] = deque(maxlen=MAX_WAITING)
        self._has_news = threading.Semaphore(0)
        self._known: set[str] = set()
        self._step: int | None = None
        self._paged: object = None
        self._is_off = False
        self._thread = threading.Thread(target=self._write_all, name="trmon-tracker", daemon=True)

    def open(self) -> None:
        """Look for the tracker's run until there is one; only the trainer's thread knows it."""
        if self._tracker is None and not self._is_off:
            try:
                self._tracker = find_tracker(self._name)
            except Exception as error:  # noqa: BLE001  a tracker of any version may raise anything
                self._fail(error)
            if self._tracker is not None:
                self._thread.start()

    def update(self, advice: Mapping[str, Any]) -> None:
        """Queue the findings of a newly judged step."""
        findings, step = advice.get("findings"), advice.get("step")
        if isinstance(findings, Mapping) and step != self._step:
            self._step = step
            self._waiting.append(advice)
            self._has_news.release()

    def close(self, timeout_seconds: float) -> None:
        """Wait until what is queued is written, or the time is out."""
        self._waiting.append(None)
        self._has_news.release()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _write_all(self) -> None:
        while not self._is_off:
            self._has_news.acquire()
            if not self._waiting:
                continue  # the oldest of too many was dropped
            if (advice := self._waiting.popleft()) is None:
                return
            try:
                self._write(advice)
            except Exception as error:  # noqa: BLE001  a tracker of any version may raise anything
                self._fail(error)

    def _write(self, advice: Mapping[str, Any]) -> None:
        assert self._tracker is not None
        self._known |= advice["findings"].keys()
        levels = {one: LEVELS.get(advice["findings"].get(one, ""), 0.0) for one in sorted(self._known)}
        if levels:
            self._tracker.log({f"{GAUGE}{one}": level for one, level in levels.items()}, advice["step"])
        incident = advice.get("incident") or {}
        key = incident.get("opened_step") if incident.get("severity") == PAGE else None
        before, self._paged = self._paged, key
        if key is not None and key != before:
            path = incident.get("checkpoint_path")
            text = (incident.get("summary"), incident.get("remedy"), path and f"Checkpoint to go back to: {path}")
            self._tracker.alert(f"trmon: {incident.get('title')}", "\n".join(line for line in text if line))

    def _fail(self, error: Exception) -> None:
        self._is_off = True
        text = f"findings are not sent to {self._name.partition(':')[0]} any more: {type(error).__name__}: {error}"
        self._error_guard.warn_of_misuse("tracker", text)
