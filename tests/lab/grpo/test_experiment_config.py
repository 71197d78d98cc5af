"""Configurations: ramps, and names made of the content."""

from __future__ import annotations

import msgspec

from tests.lab.grpo.experiments import small
from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig, Ramp, WeightFormat, constant


def test_a_ramp_moves_in_equal_steps_between_its_values() -> None:
    ramp = Ramp(1.0, 3.0, first_update=10, n_updates=4)
    assert [ramp.at(update) for update in (0, 9, 10, 11, 12, 13, 14, 99)] == [1.0, 1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0]
    assert constant(2.0).at(0) == constant(2.0).at(50) == 2.0


def test_the_weights_are_bfloat16_until_the_first_update_of_another_format() -> None:
    engine = EngineMismatch(weight_format=WeightFormat.INT3, first_update=5)
    assert [engine.format_at(update) for update in (4, 5)] == [WeightFormat.BFLOAT16, WeightFormat.INT3]


def test_a_configuration_survives_json_and_every_value_is_in_its_name() -> None:
    config = small(engine=EngineMismatch(lag=Ramp(0.0, 8.0, first_update=60, n_updates=100)))
    again = msgspec.json.decode(msgspec.json.encode(config), type=ExperimentConfig)
    assert again == config
    assert again.run_name == config.run_name
    assert len({config.run_name, small().run_name, small(seed=9).run_name, small(clip=0.3).run_name}) == 4
