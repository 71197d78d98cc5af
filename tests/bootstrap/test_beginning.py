"""What a service says once it listens can be pasted into a trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.fixtures.service import ServiceProcess

LAST = "decision ="


def test_the_lines_that_a_service_prints_report_a_run(process: ServiceProcess, tmp_path: Path) -> None:
    assert process.process.stdout is not None
    lines: list[str] = []
    while not lines or LAST not in lines[-1]:
        lines.append(process.process.stdout.readline())
    said = {line[:11].strip(): line[11:].strip() for line in lines if line[:11].strip()}
    assert said["page"] == process.url
    assert said["data"] == str(process.data_dir)
    assert said["tokens"].startswith("none: this machine alone")
    trainer = "import numpy as np\nstep, mask, mu = 0, np.ones((2, 4)), np.full((2, 4), -1.0)\npi = mu\n"
    script = tmp_path / "grpo.py"
    script.write_text(trainer + "\n".join([said["trainer"], *(line.strip() for line in lines if "monitor" in line)]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRMON_")}
    subprocess.run([sys.executable, script], env=environment, cwd=tmp_path, check=True, timeout=60)
    (run,) = httpx.get(f"{process.url}/api/v1/runs").json()["items"]
    assert run["project"] == "math"
    assert run["run"].startswith("grpo-")
