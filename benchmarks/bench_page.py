"""Measures the page in Chromium: first views, a fleet of 2,000 runs, panning a run of 100,000 steps; prints a table.

Times come from the page's own clock: from the navigation of a browser with an empty cache to the frame that shows the
named element. The service is a separate process on the same cores, idle: it has processed every run it found.

PYTHONPATH=. python benchmarks/bench_page.py
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.table import Table

from benchmarks.load.filling import write_steps
from benchmarks.load.processes import cpu_seconds
from tests.fixtures.browser import Visit, chromium, leave, visit
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.service import ServiceProcess
from tests.store.builders import append, start_intake
from trmon.domain.identity import RunKey

RUNS, RUN_STEPS = 2000, 60
FLEET = f"fleet of {RUNS + 1:,} runs"
ALL_SHOWN = f"table[aria-rowcount='{RUNS + 2}']"
VERDICT = "section[aria-label='Diagnosis'] *"
LONG, LONG_STEPS = RunKey("math", "long"), 100_000
SIGNALS = (
    *("reward_mean", "mask_rate", "response_length_mean", "response_length_p95", "version_lag_mean", "step_seconds"),
    *("mismatch_kl_k3", "total_kl_k3", "total_ess_token", "total_ess_seq", "total_chi2_token", "mismatch_prob_pearson"),
)
REPEATS = 9
COLD_REPEATS = 3
PANS = 60
REST_SHARE = 0.05
"""The share of a core below which a service counts as idle."""
SEEN = """selector => {
    const look = () => {
        if (!document.querySelector(selector)) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => (window.seenAt = performance.now())));
    };
    const observer = new MutationObserver(look);
    observer.observe(document, { childList: true, subtree: true, attributes: true });
}"""
FRAMES = """async () => {
    const times = [];
    let last = performance.now();
    window.stopFrames = () => times;
    const next = (now) => { times.push(now - last); last = now; requestAnimationFrame(next); };
    requestAnimationFrame(next);
}"""


def main() -> None:
    """Write the runs, open the views and print their times."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        _write(Path(folder))
        written_seconds = time.perf_counter() - began
        service = ServiceProcess(Path(folder), idle_after_seconds="1.0")
        _wait_until_idle(service)
        table = Table("what", "median ms", "p95 ms", "worst ms", "kB", title=f"load {os.getloadavg()[0]:.1f}")
        with chromium() as browser:
            for row in (*_first_views(browser, service), _scrolling(browser, service), *_panning(browser, service)):
                table.add_row(*row)
        service.stop()
        Console().print(table)
        Console().print(
            f"{RUNS} runs of {RUN_STEPS} steps and one of {LONG_STEPS:,}, written in {written_seconds:.0f} s"
        )


def _first_views(browser: Browser, service: ServiceProcess) -> Iterator[tuple[str, ...]]:
    """Measure first views; the browser has opened a page before."""
    _timed(browser, service, "/alerts", "main h1")
    for what, path, ready in (
        (f"{FLEET}, after a restart: first rows", "/", "tbody tr"),
        (f"{FLEET}: first rows", "/", "tbody tr"),
        (f"{FLEET}: all runs", "/", ALL_SHOWN),
        ("run of 60 steps: verdict", "/runs/math/run-0", VERDICT),
        ("run of 60 steps: charts drawn", "/runs/math/run-0", ".charts canvas"),
        ("run of 100,000 steps: verdict", f"/runs/{LONG}", VERDICT),
        ("run of 100,000 steps: charts drawn", f"/runs/{LONG}", ".charts canvas"),
    ):
        views = []
        for _ in range(COLD_REPEATS if "restart" in what else REPEATS):
            if "restart" in what:
                service.stop()
                service.start()
                _wait_until_idle(service)
            views.append(_timed(browser, service, path, ready))
        size = statistics.median(size for _, size in views) / 1000
        yield (what, *_spread([milliseconds for milliseconds, _ in views]), f"{size:.0f}")


def _timed(browser: Browser, service: ServiceProcess, path: str, ready: str) -> tuple[float, int]:
    tab = visit(browser, service.url)
    tab.page.add_init_script(f"({SEEN})({json.dumps(ready)})")
    tab.page.goto(f"{service.url}{path}", wait_until="commit")
    while (milliseconds := tab.page.evaluate("window.seenAt")) is None:
        tab.page.wait_for_timeout(50)
    tab.page.wait_for_timeout(500)
    leave(tab)
    return milliseconds, tab.received_bytes


def _wait_until_idle(service: ServiceProcess) -> None:
    """Wait until the longest run is judged, which a worker does last, and the service and its worker rest."""
    with service.client() as client:
        while client.get(f"/api/v1/runs/{LONG}").json()["status"]["judged_step"] is None:
            time.sleep(1.0)
    used, before = 0.0, -math.inf
    while used - before > REST_SHARE:
        before = used
        time.sleep(1.0)
        used = cpu_seconds([service.process.pid])


def _scrolling(browser: Browser, service: ServiceProcess) -> tuple[str, ...]:
    tab = visit(browser, service.url)
    tab.go("/")
    tab.page.wait_for_selector(ALL_SHOWN, state="attached")
    frames = _frames(tab, lambda page: page.mouse.wheel(0, 400))
    return (f"{FLEET}: a frame while scrolling", *_spread(frames), "")


def _panning(browser: Browser, service: ServiceProcess) -> list[tuple[str, ...]]:
    tab = visit(browser, service.url)
    page = tab.go(f"/runs/{LONG}?from=40000&to=50000")
    page.wait_for_selector(".charts canvas")
    page.wait_for_timeout(1500)
    page.locator(".plot").first.focus()
    answers: list[float] = []
    page.on(
        "requestfinished",
        lambda asked: answers.append(asked.timing["responseEnd"]) if "/signals?" in asked.url else None,
    )
    frames = _frames(tab, lambda page: page.keyboard.press("ArrowRight"))
    page.wait_for_timeout(1500)
    return [
        ("run of 100,000 steps: a frame while panning 9 charts", *_spread(frames), ""),
        ("run of 100,000 steps: the next stretch of signals", *_spread(answers), ""),
    ]


def _frames(tab: Visit, act: Any) -> list[float]:
    page: Page = tab.page
    page.evaluate(FRAMES)
    for _ in range(PANS):
        act(page)
        page.wait_for_timeout(16)
    frames: list[float] = page.evaluate("window.stopFrames()")
    return frames[1:]


def _spread(times: list[float]) -> tuple[str, str, str]:
    """Return the median, the 95th percentile and the largest of times."""
    return f"{statistics.median(times):.0f}", f"{np.percentile(times, 95):.0f}", f"{max(times):.0f}"


def _write(folder: Path) -> None:
    store = open_migrated_store(folder / "trmon.sqlite")
    names = [*(f"run-{i}" for i in range(RUNS)), LONG.run]
    for name, receipt in zip(names, append(store, *(start_intake("math", name) for name in names)), strict=True):
        n = LONG_STEPS if name == LONG.run else RUN_STEPS
        random = np.random.default_rng(receipt.run_id)
        values = np.abs(np.cumsum(random.normal(size=(n, len(SIGNALS))), axis=0)) / np.sqrt(n) + 0.01

        def fields_of(step: int, values: np.ndarray = values) -> dict[str, Any]:
            signals = dict(zip(SIGNALS, values[step].tolist(), strict=True))
            return {"signals": signals, "scalars": {"grad_norm": float(values[step, 0])}}

        write_steps(store, (receipt.run_id, receipt.attempt_id or 0), n, fields_of=fields_of)
    store.close()


if __name__ == "__main__":
    main()
