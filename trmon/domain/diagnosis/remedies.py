"""Remedies: the smallest fix of each finding, in words and as options of verl 0.9.1 and of TRL 1.16 (GRPOConfig).

All options exist in these releases; the settings are empty if a framework has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trmon.domain.diagnosis.finding import Finding

_LR = "half of what it is"
_VERL_LR = "actor_rollout_ref.actor.optim.lr"
_CORRECTION = "algorithm.rollout_correction"
_VERL_ICEPOP = {f"{_CORRECTION}.rollout_is": "token", f"{_CORRECTION}.rollout_is_threshold": '"0.5_5.0"'}
_VERL_GEO_MASK = {f"{_CORRECTION}.rollout_rs": "seq_mean_k1", f"{_CORRECTION}.rollout_rs_threshold": '"0.99_1.01"'}
_TRL_ICEPOP = {
    "vllm_importance_sampling_mode": '"token_mask"',
    "vllm_importance_sampling_clip_min": "0.5",
    "vllm_importance_sampling_clip_max": "5.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change first, as text and as configuration (option to value), and what to do if the problem persists."""

    fix: str
    verl: dict[str, str] = field(default_factory=dict)
    trl: dict[str, str] = field(default_factory=dict)
    persists: str


REMEDIES: dict[Finding, Remedy] = {
    Finding.SUPPORT_SHIFT: Remedy(
        fix="Score the distribution that was sampled: the same temperature and top-p/top-k in training as in the "
        "rollout, and log-probs that are processed on both sides or raw on both sides.",
        verl={
            "actor_rollout_ref.rollout.temperature": "1.0",
            "actor_rollout_ref.rollout.top_p": "1.0",
            "actor_rollout_ref.rollout.top_k": "-1",
            "actor_rollout_ref.rollout.logprobs_mode": "processed_logprobs",
        },
        trl={"temperature": "1.0", "top_p": "1.0", "top_k": "0", "repetition_penalty": "1.0"},
        persists="Compare one response token by token: a constant offset points to the temperature, one that changes "
        "with the token to the mass of the nucleus; look for penalties and logit processors in the engine.",
    ),
    Finding.CORRUPT_LOGPROBS: Remedy(
        fix="Check the log-prob stream first: dropped, padded or misaligned values. No correction rescues it; until it "
        "is repaired, keep the engine's numbers out of the loss.",
        verl={f"{_CORRECTION}.bypass_mode": "false", f"{_CORRECTION}.rollout_is": "null"},
        trl={"vllm_importance_sampling_correction": "False"},
        persists="Print one response's tokens with both log-probs: zeros at the end are padding, a shift by one "
        "token is misalignment, -9999 is a placeholder of an engine.",
    ),
    Finding.STALENESS: Remedy(
        fix="Reduce the lag: sync the rollout engine's weights more often and use a rollout for fewer updates; then "
        "correct the remaining drift (geo_mask).",
        verl={
            "trainer.v1.separate_async.parameter_sync_step": "1",
            "trainer.v1.sampler.max_off_policy_threshold": "half of what it is",
            "actor_rollout_ref.actor.ppo_epochs": "1",
            **_VERL_GEO_MASK,
        },
        trl={"steps_per_generation": "half of what it is", "num_iterations": "1"},
        persists="Look for rollouts that outlive their weights: long responses, partial rollouts, a full queue; then "
        "lower the learning rate, which makes every lag smaller.",
    ),
    Finding.MOE_ROUTING: Remedy(
        fix="Keep the routing: replay the rollout's expert choices in training (R3).",
        verl={
            "actor_rollout_ref.actor.megatron.router_replay.mode": "R3",
            "actor_rollout_ref.rollout.enable_rollout_routing_replay": "true",
        },
        trl=_TRL_ICEPOP,
        persists="Replay hides the difference between the routers but does not reduce it: align their precision, "
        "and mask tokens outside [0.5, 5] (icepop).",
    ),
    Finding.ENGINE_MISMATCH: Remedy(
        fix="Align the engines at equal weights: precision first, then tensor parallelism, then kernels.",
        verl={
            "actor_rollout_ref.rollout.quantization": "null",
            "actor_rollout_ref.rollout.dtype": "what actor_rollout_ref.actor.fsdp_config.dtype is",
            "actor_rollout_ref.rollout.tensor_model_parallel_size": "1",
            "actor_rollout_ref.rollout.enforce_eager": "true",
        },
        trl={
            "cast_lm_head_to_fp32": "True",
            "vllm_tensor_parallel_size": "1",
            "vllm_model_impl": '"transformers"',
        },
        persists="Check that all weights arrive: score one response with both engines right after a sync. A "
        "mixture of experts needs routing replay or icepop; log router_flip_rate to tell.",
    ),
    Finding.STEP_TOO_LARGE: Remedy(
        fix="Take smaller steps: halve the learning rate.",
        verl={_VERL_LR: _LR},
        trl={"learning_rate": _LR},
        persists="Clip the gradient harder, warm up longer, and look at the steps whose grad_norm spikes.",
    ),
    Finding.CLIP_SATURATION: Remedy(
        fix="Train less on each rollout: fewer epochs, then a smaller learning rate.",
        verl={"actor_rollout_ref.actor.ppo_epochs": "1", _VERL_LR: _LR},
        trl={"num_iterations": "1", "learning_rate": _LR},
        persists="Larger minibatches make fewer updates of a rollout; a wider clip range only hides it.",
    ),
    Finding.VARIANCE_BLOWUP: Remedy(
        fix="Filter before reweighting: no weight for tokens whose ratio leaves [0.5, 5] (icepop), then less lag.",
        verl=_VERL_ICEPOP,
        trl=_TRL_ICEPOP,
        persists="Find the cause of the ratios: findings A and B name the two causes, which weights cannot repair.",
    ),
    Finding.MODERATE_DRIFT: Remedy(
        fix="Reject sequences by their geometric mean ratio (geo_mask, 0.99 to 1.01).",
        verl=_VERL_GEO_MASK,
        trl={"off_policy_mask_threshold": "0.1"},
        persists="When the mask rate passes 10%, add token-level truncated weights; past 25%, fix the system.",
    ),
    Finding.LENGTH_SURGE: Remedy(
        fix="Halve the learning rate, then audit the reward: read the longest responses with high rewards.",
        verl={_VERL_LR: _LR},
        trl={"learning_rate": _LR, "mask_truncated_completions": "True"},
        persists="Cap or penalise length in the reward; long responses grow every bound with their square.",
    ),
    Finding.NO_LEARNING_SIGNAL: Remedy(
        fix="Filter prompts whose answers all have the same reward, or rebalance their difficulty.",
        verl={"algorithm.filter_groups.enable": "true", "algorithm.filter_groups.metric": "reward"},
        trl={"num_generations": "twice what it is"},
        persists="Check that the reward still distinguishes answers: all 0 means a broken verifier or too hard a set, "
        "all 1 a solved set.",
    ),
}
