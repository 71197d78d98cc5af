"""Recorded runs: a replay repeats the calls of the lab's trainer, and the files match what the script records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch import Tensor

from tests.fixtures.record_runs import RUNS, record
from tests.fixtures.recorded_runs import Array, RecordedRun
from tests.lab.recording import Call, RecordingMonitor
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.lab.testbed.training import run_training

HALF_PRECISION = {"rtol": 1e-3, "atol": 6e-8}


def test_a_replay_repeats_the_recorded_calls() -> None:
    config = replace(LabConfig.injected(Injection.STALE, 0), n_steps=4, onset_step=1, ramp_steps=1)
    trained, replayed = RecordingMonitor(), RecordingMonitor()
    assert len(list(run_training(config, trained))) == 4
    assert list(record(config).replay(replayed)) == [0, 1, 2, 3]

    assert replayed.scalars == trained.scalars
    for again, call in zip(replayed.calls, trained.calls, strict=True):
        assert (again.step, again.update, again.chunks) == (call.step, call.update, call.chunks)
        assert again.scalars == call.scalars
        assert again.inputs.keys() == call.inputs.keys()
        for name in call.inputs:
            np.testing.assert_allclose(_numbers(again, name), _numbers(call, name), err_msg=name, **HALF_PRECISION)


@pytest.mark.parametrize("name", RUNS)
def test_a_recording_holds_the_steps_of_its_configuration(name: str) -> None:
    monitor = RecordingMonitor()
    assert list(RecordedRun.load(name).replay(monitor)) == list(range(RUNS[name].n_steps))
    assert {len(call.inputs["mask"]) for call in monitor.rollouts()} == {96}


def _numbers(call: Call, name: str) -> Array:
    """Return an argument of a call, restricted to valid tokens if it is per token."""
    given = np.asarray(call.inputs[name].detach() if isinstance(call.inputs[name], Tensor) else call.inputs[name])
    return given[np.asarray(call.inputs["mask"])] if given.ndim == 2 else given
