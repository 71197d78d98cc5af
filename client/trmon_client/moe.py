"""Signals of mixtures of experts: router flips, and the load of experts.

    found = moe.flips(rollout_ids, train_ids, mask=mask)
    monitor.log_scalars(step, found.scalars() | {"max_vio": moe.max_vio(train_ids, n_experts=128, mask=mask)})

A run that replays the rollout's routing says so: `trmon.init(..., config={"router_replay": True})`.
"""

from trmon_client.core.routing import RouterFlips, flips, max_vio

__all__ = ["RouterFlips", "flips", "max_vio"]
