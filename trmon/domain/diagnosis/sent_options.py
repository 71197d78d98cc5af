"""Options of frameworks that a run's own signals tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trmon.domain.diagnosis.framework_options import TRL_LR, VERL_LR
from trmon.domain.diagnosis.history import History
from trmon.domain.diagnosis.run_config import config_value


def with_sent_options(config: Mapping[str, Any], history: History) -> dict[str, Any]:
    """Return a configuration with the learning rate that was sent: the largest, as schedules only lower it.

    Options that the configuration has stay as they are.
    """
    rates = history.values.get("lr")
    if rates is None or np.isnan(rates).all():
        return dict(config)
    rate = float(np.nanmax(rates))
    sent = {option: rate for option in (*VERL_LR, *TRL_LR) if config_value(config, option) is None}
    return {**config, **sent}
