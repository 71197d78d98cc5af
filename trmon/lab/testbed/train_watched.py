"""A lab run that reports to trmon with the two lines that any trainer adds."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict

import trmon_client as trmon
from trmon.domain.errors import InvalidInput
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.training import StepResult, run_training


def train_watched(config: LabConfig, *, url: str | None, project: str, name: str) -> Generator[StepResult, None, None]:
    """Train as configured under a project and a name, reporting to the service at `url`, and yield every step.

    Closing the iterator ends the run early.
    Errors: InvalidInput if the client rejects the name, the address or a variable.
    """
    described = {key: value for key, value in asdict(config).items() if key not in ("injection", "anchor")}
    described |= {"injection": config.injection.value if config.injection else "none", "anchor": config.anchor.value}
    try:
        monitor = trmon.init(project=project, run=name, url=url, config=described, owner="demo", tags=["lab"])
    except ValueError as error:
        raise InvalidInput("lab", str(error)) from error
    with monitor:
        yield from run_training(config, monitor)
        # At its normal end nothing may be left in the spool, however slow the machine is.
        monitor.close(timeout=None)
