"""Remedies: the smallest fix of each finding, in words and as options of verl and of TRL.

A finding whose signal can leave its range on either side has a remedy for each side, its form.
Source: [DRIFT], the table of causes; formulas, sections 9 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trmon.domain.diagnosis import framework_options as options
from trmon.domain.diagnosis.framework_options import (
    ACTOR,
    CORRECTION,
    HALF_STEPS,
    ROLLOUT,
    TWICE,
    Options,
    Present,
    RunFacts,
    rendered_options,
)
from trmon.domain.finding import Finding, FindingForm

STOP = "Stop, "
"""How the words of a remedy begin that stops the run; once it has ended, they do without."""


def for_next_run(fix: str) -> str:
    """Return a fix without its first word where that stops the run, which has ended."""
    rest = fix.removeprefix(STOP)
    return f"{rest[:1].upper()}{rest[1:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRemedy:
    """A remedy whose options have the values to set, as text to paste.

    Options whose values do not follow from what is known of the run are apart, with words in place of values.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str]
    trl_next: dict[str, str]
    verl_in_words: dict[str, str]
    trl_in_words: dict[str, str]
    verl_next_in_words: dict[str, str]
    trl_next_in_words: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change first, as text and as configuration of verl and of TRL, and what to do if the problem persists."""

    fix: str
    verl: Options = field(default_factory=dict)
    trl: Options = field(default_factory=dict)
    persists: str
    verl_next: Options = field(default_factory=dict)
    trl_next: Options = field(default_factory=dict)

    def render(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        last_good_step: int | None = None,
        has_ended: bool = False,
    ) -> RenderedRemedy:
        """Return the remedy with the values that follow from the run's configuration.

        Args: config: TRL's arguments, or verl's configuration, nested or with dotted names; has_ended: of the run.
        """
        facts = RunFacts(config=config or {}, last_good_step=last_good_step)
        verl, trl = rendered_options(self.verl, facts), rendered_options(self.trl, facts)
        verl_next, trl_next = rendered_options(self.verl_next, facts), rendered_options(self.trl_next, facts)
        return RenderedRemedy(
            fix=for_next_run(self.fix) if has_ended else self.fix,
            verl=verl.values,
            trl=trl.values,
            persists=self.persists,
            verl_next=verl_next.values,
            trl_next=trl_next.values,
            verl_in_words=verl.in_words,
            trl_in_words=trl.in_words,
            verl_next_in_words=verl_next.in_words,
            trl_next_in_words=trl_next.in_words,
        )


_CONFIGURED_TEMPERATURE = f"{ROLLOUT}.temperature"

REMEDIES: dict[Finding, Remedy] = {
    Finding.SUPPORT_SHIFT: Remedy(
        fix="Score the distribution that was sampled: the same top-p/top-k in training as in the rollout, and "
        "log-probs that are processed on both sides or raw on both sides.",
        verl={
            f"{ROLLOUT}.temperature": Present(_CONFIGURED_TEMPERATURE, "1.0"),
            f"{ROLLOUT}.top_p": "1.0",
            f"{ROLLOUT}.top_k": "-1",
            f"{ROLLOUT}.logprobs_mode": "processed_logprobs",
        },
        trl={
            "temperature": Present("temperature", "1.0"),
            "top_p": "1.0",
            "top_k": "0",
            "repetition_penalty": "1.0",
        },
        persists="Compare one response token by token: a constant offset points to the temperature, one that changes "
        "with the token to the mass of the nucleus; look for penalties and logit processors in the engine.",
    ),
    Finding.CORRUPT_LOGPROBS: Remedy(
        fix="Check the log-prob stream first: dropped, padded or misaligned values. No correction rescues it; until it "
        "is repaired, keep the engine's numbers out of the loss.",
        verl={f"{CORRECTION}.bypass_mode": "false", **options.VERL_NO_CORRECTION},
        trl={"vllm_importance_sampling_correction": "False"},
        persists="Print one response's tokens with both log-probs: zeros at the end are padding, a shift by one "
        "token is misalignment, -9999 is a placeholder of an engine.",
    ),
    Finding.STALENESS: Remedy(
        fix="Reduce the lag: sync the rollout engine's weights more often and use a rollout for fewer updates; then "
        "correct the remaining drift: reject sequences whose geometric mean ratio leaves 0.99 to 1.01 and truncate the "
        "weights of the others.",
        verl={
            "trainer.v1.separate_async.parameter_sync_step": "1",
            "trainer.v1.sampler.max_off_policy_threshold": HALF_STEPS,
            f"{ACTOR}.ppo_epochs": "1",
            **options.VERL_GEO_RS_SEQ_TIS,
        },
        trl={"steps_per_generation": HALF_STEPS, "num_iterations": "1", **options.TRL_SEQUENCE_TIS},
        persists="Look for rollouts that outlive their weights: long responses, partial rollouts, a full queue; then "
        "lower the learning rate, which makes every lag smaller. With ess_token below 0.5, filter by token (icepop).",
        verl_next={**options.VERL_LR, **options.VERL_ICEPOP},
        trl_next={**options.TRL_LR, **options.TRL_ICEPOP},
    ),
    Finding.MOE_ROUTING: Remedy(
        fix="Give no weight to tokens whose ratio leaves [0.5, 5] (icepop), then keep the routing: replay the "
        "rollout's expert choices in training (R3).",
        verl={**options.VERL_ICEPOP, **options.VERL_R3},
        trl=options.TRL_ICEPOP,
        persists="Replay hides the difference between the routers but does not reduce it: align their precision, and "
        "compute the router in float32 on both sides.",
        verl_next={f"{ROLLOUT}.dtype": "float16", f"{ACTOR}.megatron.dtype": "float16"},
        trl_next={"fp16": "True", "bf16": "False"},
    ),
    Finding.ENGINE_MISMATCH: Remedy(
        fix="Align the engines at equal weights: precision first (FP16 on both engines), and no correction until they "
        "agree. TRL's engine: trl vllm-serve --dtype float16.",
        verl={
            f"{ROLLOUT}.dtype": "float16",
            f"{ACTOR}.fsdp_config.dtype": "float16",
            f"{ROLLOUT}.quantization": "null",
            **options.VERL_NO_CORRECTION,
        },
        trl={"fp16": "True", "bf16": "False", "cast_lm_head_to_fp32": "True"},
        persists="Then tensor parallelism, then kernels (VLLM_BATCH_INVARIANT=1). Check that all weights arrive: score "
        "one response with both engines right after a sync. A mixture of experts needs icepop or routing replay; log "
        "router_flip_rate to tell.",
        verl_next={f"{ROLLOUT}.tensor_model_parallel_size": "1", f"{ROLLOUT}.enforce_eager": "true"},
        trl_next={"vllm_tensor_parallel_size": "1", "vllm_model_impl": '"transformers"'},
    ),
    Finding.STEP_TOO_LARGE: Remedy(
        fix="Take smaller steps: halve the learning rate.",
        verl=options.VERL_LR,
        trl=options.TRL_LR,
        persists="Clip the gradient harder, warm up longer, and look at the steps whose grad_norm spikes.",
        verl_next={f"{ACTOR}.optim.clip_grad": "0.5"},
        trl_next={"max_grad_norm": "0.5"},
    ),
    Finding.CLIP_SATURATION: Remedy(
        fix="Train less on each rollout: one epoch and half the learning rate.",
        verl={f"{ACTOR}.ppo_epochs": "1", **options.VERL_LR},
        trl={"num_iterations": "1", **options.TRL_LR},
        persists="Take an objective that does not depend on the length (GSPO); a wider clip range only hides it.",
        verl_next=options.VERL_GSPO,
        trl_next=options.TRL_GSPO,
    ),
    Finding.VARIANCE_BLOWUP: Remedy(
        fix="Filter before reweighting: no weight for tokens whose ratio leaves [0.5, 5] (icepop), then less lag.",
        verl=options.VERL_ICEPOP,
        trl=options.TRL_ICEPOP,
        persists="Over 10 to 25% of the tokens masked is the limit of correction. Find the cause of the ratios: "
        "findings A and B name the two causes, which weights cannot repair.",
        verl_next={"trainer.v1.sampler.max_off_policy_threshold": HALF_STEPS},
        trl_next={"steps_per_generation": HALF_STEPS},
    ),
    Finding.MODERATE_DRIFT: Remedy(
        fix="Reject sequences by their geometric mean ratio (geo_mask, 0.99 to 1.01).",
        verl=options.VERL_GEO_RS,
        trl={"off_policy_mask_threshold": "0.1"},
        persists="When the mask rate passes 10%, add token-level truncated weights; past 25%, fix the system.",
        verl_next=options.VERL_GEO_RS_TOKEN_TIS,
        trl_next=options.TRL_TOKEN_TIS,
    ),
    Finding.LENGTH_SURGE: Remedy(
        fix="Halve the learning rate, then audit the reward: read the longest responses with high rewards.",
        verl=options.VERL_LR,
        trl={**options.TRL_LR, "mask_truncated_completions": "True"},
        persists="Audit the reward, the end-of-sequence token and any length bonus; long responses grow every bound "
        "with their square.",
        verl_next=options.VERL_BYPASS_PG_GEO_RS,
        trl_next={"off_policy_mask_threshold": "0.1"},
    ),
    Finding.NOT_A_NUMBER: Remedy(
        fix="Stop, go back to the last good checkpoint, and look at the batch of the first step with NaN or infinity.",
        verl={**options.VERL_RESUME, f"{ACTOR}.grad_clip": "1.0", **options.VERL_LR},
        trl={**options.TRL_RESUME, "max_grad_norm": "1.0", **options.TRL_LR},
        persists="Search for the first operation that overflows: run that step with torch.autograd.detect_anomaly, and "
        "compute the log-probs in float32.",
    ),
    Finding.TEMPERATURE: Remedy(
        fix="Use one temperature for sampling, for the reported log-probs and for the trainer's log-probs.",
        verl={
            f"{ROLLOUT}.temperature": Present(_CONFIGURED_TEMPERATURE, "1.0"),
            f"{ROLLOUT}.logprobs_mode": "processed_logprobs",
        },
        trl={"temperature": Present("temperature", "1.0")},
        persists="Look for a second temperature: generation defaults of the model, or an engine that reports raw "
        "log-probs beside processed sampling.",
    ),
    Finding.VERSION_SPAN: Remedy(
        fix="Responses mix weights: end partial rollouts at a change of weights, or correct them token by token.",
        verl={"trainer.v1.separate_async.parameter_sync_step": "1", "trainer.v1.sampler.max_off_policy_threshold": "1"},
        trl={"steps_per_generation": HALF_STEPS},
        verl_next=options.VERL_ICEPOP,
        trl_next=options.TRL_ICEPOP,
        persists="Pass versions of each token, so that corrections know which policy sampled it.",
    ),
    Finding.ENTROPY: Remedy(
        fix="Halve the learning rate, and look at which way the entropy went: a collapse needs exploration, an "
        "explosion less of it.",
        verl=options.VERL_LR,
        trl=options.TRL_LR,
        persists="Look at the samples: repeated answers need harder prompts, random ones an earlier checkpoint.",
    ),
    Finding.LENGTH: Remedy(
        fix="Audit the reward: read the shortest and the longest responses with high rewards; filter overlong ones.",
        verl={"data.max_response_length": TWICE},
        trl={"mask_truncated_completions": "True"},
        persists="Normalise the reward by length, and check that a cut response gets no reward for its length.",
    ),
    Finding.REWARD_COLLAPSE: Remedy(
        fix="Stop, go back to the last good checkpoint, and halve the learning rate; its cause is not known "
        "yet: see what else was found.",
        verl={**options.VERL_RESUME, **options.VERL_LR},
        trl={**options.TRL_RESUME, **options.TRL_LR},
        persists="If no other finding stands, audit the reward and the data that came after the last good step.",
    ),
    Finding.NO_LEARNING_SIGNAL: Remedy(
        fix="Filter prompts whose answers all have the same reward, or rebalance their difficulty.",
        verl={"algorithm.filter_groups.enable": "true", "algorithm.filter_groups.metric": "reward"},
        trl={"num_generations": TWICE},
        persists="Check that the reward still distinguishes answers: all 0 means a broken verifier or too hard a set, "
        "all 1 a solved set.",
    ),
}

FORM_REMEDIES: dict[FindingForm, Remedy] = {
    FindingForm.ENTROPY_COLLAPSE: Remedy(
        fix="Raise the upper clip bound (clip-higher), and halve the learning rate.",
        verl={f"{ACTOR}.clip_ratio_high": "0.28", **options.VERL_LR},
        trl={"epsilon_high": "0.28", **options.TRL_LR},
        persists="Add an entropy bonus, and look at the samples: repeated answers need harder prompts.",
        verl_next={f"{ACTOR}.entropy_coeff": "0.001"},
        trl_next={"entropy_coef": "0.001"},
    ),
    FindingForm.ENTROPY_EXPLOSION: Remedy(
        fix="Remove the entropy bonus, and halve the learning rate.",
        verl={f"{ACTOR}.entropy_coeff": "0", **options.VERL_LR},
        trl={"entropy_coef": "0.0", **options.TRL_LR},
        persists="Go back to the last good checkpoint, then lower the sampling temperature, the same for the rollout "
        "and for the log-probs.",
        verl_next=options.VERL_RESUME,
        trl_next=options.TRL_RESUME,
    ),
}


def remedy_of(finding: Finding, form: FindingForm | None = None) -> Remedy | None:
    """Return the remedy of a finding, that of its form where it is known; None for `healthy` and `unknown`."""
    return REMEDIES.get(finding) if form is None else FORM_REMEDIES[form]
