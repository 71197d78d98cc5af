"""Options of verl 0.9.1 and of TRL 1.16 (GRPOConfig) that remedies set.

All options exist in these releases. The names of presets are the class methods of verl's RolloutCorrectionConfig that
set the same options.
"""

from __future__ import annotations

from trmon.domain.diagnosis.option_values import Beside, Multiple, Options, SavedCheckpoint

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
GEO_BAND = '"0.99_1.01"'

HALF = Multiple(0.5, "half of what it is")
HALF_STEPS = Multiple(0.5, "half of what it is", least=1)
TWICE = Multiple(2.0, "twice what it is", least=2)

VERL_LR: Options = {f"{ACTOR}.optim.lr": HALF}
TRL_LR: Options = {"learning_rate": HALF}

VERL_NO_CORRECTION: Options = {f"{CORRECTION}.rollout_is": "null", f"{CORRECTION}.rollout_rs": "null"}
"""Preset `disabled`: measure only."""
VERL_ICEPOP: Options = {
    f"{CORRECTION}.rollout_is": "token",
    f"{CORRECTION}.rollout_is_threshold": '"0.5_5.0"',
    f"{CORRECTION}.rollout_rs": "null",
}
"""Preset `decoupled_token_icepop`."""
VERL_GEO_RS: Options = {
    f"{CORRECTION}.rollout_is": "null",
    f"{CORRECTION}.rollout_rs": "seq_mean_k1",
    f"{CORRECTION}.rollout_rs_threshold": GEO_BAND,
}
"""Preset `decoupled_geo_rs` with the thresholds of [GEO]."""
VERL_GEO_RS_SEQ_TIS: Options = {
    f"{CORRECTION}.rollout_is": "sequence",
    f"{CORRECTION}.rollout_is_threshold": "2.0",
    f"{CORRECTION}.rollout_rs": "seq_mean_k1",
    f"{CORRECTION}.rollout_rs_threshold": GEO_BAND,
}
"""Preset `decoupled_geo_rs_seq_tis`."""
VERL_GEO_RS_TOKEN_TIS: Options = {**VERL_GEO_RS_SEQ_TIS, f"{CORRECTION}.rollout_is": "token"}
"""Preset `decoupled_geo_rs_token_tis`."""
VERL_BYPASS_PG_GEO_RS: Options = {
    **VERL_GEO_RS,
    f"{CORRECTION}.bypass_mode": "true",
    f"{CORRECTION}.loss_type": "reinforce",
}
"""Preset `bypass_pg_geo_rs`."""
VERL_GSPO: Options = {
    f"{ACTOR}.policy_loss.loss_mode": "gspo",
    f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
    f"{ACTOR}.clip_ratio_low": "3e-4",
    f"{ACTOR}.clip_ratio_high": "4e-4",
}
_VERL_CHECKPOINT = SavedCheckpoint("trainer.default_local_dir", "trainer.save_freq", "global_step_")
VERL_RESUME: Options = {
    "trainer.resume_mode": Beside("resume_path", _VERL_CHECKPOINT),
    "trainer.resume_from_path": _VERL_CHECKPOINT,
}
VERL_R3: Options = {
    f"{ACTOR}.megatron.router_replay.mode": "R3",
    f"{ROLLOUT}.enable_rollout_routing_replay": "true",
}

TRL_ICEPOP: Options = {
    "vllm_importance_sampling_mode": '"token_mask"',
    "vllm_importance_sampling_clip_min": "0.5",
    "vllm_importance_sampling_clip_max": "5.0",
}
TRL_SEQUENCE_TIS: Options = {
    "vllm_importance_sampling_mode": '"sequence_truncate"',
    "vllm_importance_sampling_clip_max": "2.0",
}
TRL_TOKEN_TIS: Options = {
    "vllm_importance_sampling_mode": '"token_truncate"',
    "vllm_importance_sampling_clip_max": "2.0",
}
TRL_GSPO: Options = {
    "importance_sampling_level": '"sequence"',
    "loss_type": '"grpo"',
    "epsilon": "3e-4",
    "epsilon_high": "4e-4",
}
TRL_RESUME: Options = {
    "resume_from_checkpoint": SavedCheckpoint("output_dir", "save_steps", "checkpoint-", quote='"'),
}
