"""The integration imports no framework by itself, and leaves alone what is not a trainer of TRL."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from trmon_client.integrations.trl import attach


def test_importing_the_integration_imports_no_framework() -> None:
    frameworks = "{'trl', 'transformers', 'accelerate', 'datasets', 'torch'}"
    code = f"import sys, trmon_client.integrations.trl; print(sorted({frameworks} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _log(logs: dict[str, float]) -> None:
    """Log nothing."""


def test_an_object_without_the_methods_gets_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(log=_log)
    attach(trainer, project="math", run="tiny")
    said = capsys.readouterr().err
    assert said.startswith("trmon: SimpleNamespace of TRL ")
    assert "_compute_loss(model, inputs)" in said
    assert "log(logs)" not in said
    assert said.rstrip().endswith("trmon is not attached")
    assert list(vars(trainer)) == ["log"]
