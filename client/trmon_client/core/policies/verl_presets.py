"""The presets of verl 0.9.1: the class methods of its `RolloutCorrectionConfig`, as the options that they set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SEQUENCE_IS = {"rollout_is": "sequence", "rollout_is_threshold": 2.0}
_TOKEN_IS = {"rollout_is": "token", "rollout_is_threshold": 2.0}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
_SEQUENCE_RS = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.0"}
_GEO_RS = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3_RS = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_PPO = {"bypass_mode": True, "loss_type": "ppo_clip"}
_REINFORCE = {"bypass_mode": True, "loss_type": "reinforce"}

VERL_PRESETS: dict[str, Mapping[str, Any]] = {
    "decoupled_token_is": _TOKEN_IS,
    "decoupled_seq_is": _SEQUENCE_IS,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": {**_SEQUENCE_IS, **_SEQUENCE_RS},
    "decoupled_geo_rs": _GEO_RS,
    "decoupled_geo_rs_seq_tis": {**_SEQUENCE_IS, **_GEO_RS},
    "decoupled_geo_rs_token_tis": {**_TOKEN_IS, **_GEO_RS},
    "decoupled_k3_rs": _K3_RS,
    "decoupled_k3_rs_seq_tis": {**_SEQUENCE_IS, **_K3_RS},
    "decoupled_k3_rs_token_tis": {**_TOKEN_IS, **_K3_RS},
    "bypass_ppo_clip": _PPO,
    "bypass_ppo_clip_geo_rs": {**_PPO, **_GEO_RS},
    "bypass_ppo_clip_k3_rs": {**_PPO, **_K3_RS},
    "bypass_pg_is": {**_REINFORCE, **_SEQUENCE_IS},
    "bypass_pg_token_icepop": {**_REINFORCE, **_ICEPOP},
    "bypass_pg_geo_rs": {**_REINFORCE, **_GEO_RS},
    "bypass_pg_geo_rs_seq_tis": {**_REINFORCE, **_SEQUENCE_IS, **_GEO_RS},
    "bypass_pg_geo_rs_token_tis": {**_REINFORCE, **_TOKEN_IS, **_GEO_RS},
    "disabled": {},
}
"""The options of each preset; what is left out has the value of verl's YAML. Source: verl 0.9.1."""
