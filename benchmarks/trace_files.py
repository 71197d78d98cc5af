"""How many files of the product two paths pass: python benchmarks/trace_files.py [--names]

1. The tenth `log_batch` of 8 x 64 torch tensors, in the caller's thread.
2. One report of one step, from the service that receives it to the webhook of the alert that it raises: embedded, with
   the runner in a thread, so that every thread of the service is in this process.

A file counts once a function of it is called (`sys.setprofile`); what ran before, such as imports, does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import trmon_client as trmon
from tests.fixtures.messages import columns, report
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send

ROOT = Path(__file__).parents[1]
PRODUCT = (str(ROOT / "trmon") + "/", str(ROOT / "client" / "trmon_client") + "/")
RULE = """
- name: lr_high
  severity: page
  immune_steps: 0
  for_steps: 1
  when: {signal: lr, above: 1}
  summary: "{run}: lr is {value} at step {step}"
  runbook: Lower it.
"""


class PassedFiles:
    """Notes the files of the product whose functions are called while `is_on`."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the hook of `sys.setprofile`."""
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.found.add(frame.f_code.co_filename)


def of_log_batch(folder: Path) -> set[str]:
    passed = PassedFiles()
    shape = (8, 64)
    torch.manual_seed(0)
    with trmon.init(project="p", run="r", spool_dir=folder) as monitor:
        for step in range(10):
            pi = -torch.rand(shape)
            given = {"rollout_logprobs": pi + 0.01 * torch.randn(shape), "old_logprobs": pi, "logprobs": pi - 0.001}
            rewards, groups = torch.rand(8), torch.arange(8) // 4
            given |= {"mask": torch.ones(shape, dtype=torch.bool), "advantages": torch.randn(8), "rewards": rewards}
            if step == 9:
                sys.setprofile(passed)
                passed.is_on = True
            monitor.log_batch(
                step=step, group_ids=groups, versions=torch.full((8,), step), scalars={"lr": 0.1}, **given
            )
            sys.setprofile(None)
    return passed.found


def of_report(folder: Path) -> set[str]:
    """Return the files that a service passes from a report to the webhook of its alert.

    A rule reads the row of a step once the next step begins, so the report before has the value that it fires on.
    """
    passed = PassedFiles()
    rules = folder / "rules.yaml"
    rules.write_text(RULE)
    threading.setprofile(passed)
    with WebhookServer() as webhook:
        given = {"webhook_url": webhook.url, "webhook_allow_hosts": ("127.0.0.1",), "rules_file": rules}
        service = ThreadedService(folder / "data", **given)
        with service.client() as client:
            for step in range(10):
                message = report(columns(seed=step), step=step, chunks=1, scalars={"lr": 2.0 if step >= 8 else 0.1})
                if step == 9:
                    time.sleep(2)  # until the steps before are judged
                    passed.is_on = True
                send(client, MATH, message)
            deadline = time.monotonic() + 60
            while not webhook.posted:
                assert time.monotonic() < deadline, client.get("/api/v1/alerts").text
                time.sleep(0.01)
            passed.is_on = False
        service.stop()
    threading.setprofile(None)
    return passed.found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="also print the files")
    shows_names = parser.parse_args().names
    for what, files_of in (("log_batch, tenth call", of_log_batch), ("a report to its webhook", of_report)):
        with tempfile.TemporaryDirectory() as folder:
            found = files_of(Path(folder))
        print(f"{what}: {len(found)} files")
        if shows_names:
            print(*sorted(str(Path(name).relative_to(ROOT)) for name in found), sep="\n")


if __name__ == "__main__":
    main()
