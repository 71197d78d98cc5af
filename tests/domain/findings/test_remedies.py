"""Remedies: words for everyone, options of the run's own framework, exact values, nothing that is set already."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trmon.domain.findings.configuration import plain_value
from trmon.domain.findings.remedies import MAX_OPTIONS, framework_of_config, how_to_measure, remedy
from trmon.domain.runs.run import SavedCheckpoint
from trmon_client.core.logprob_mistakes import LogprobMistake
from trmon_client.core.signals.catalogue import SIGNALS

DATA = yaml.safe_load(files("trmon.domain.findings").joinpath("remedies.yaml").read_text("utf-8"))
REMEDIES, FRAMEWORKS = DATA["remedies"], DATA["frameworks"]
VERL_LR = "actor_rollout_ref.actor.optim.lr"
VERL_TP = "actor_rollout_ref.rollout.tensor_model_parallel_size"
VERL_STRATEGY = "actor_rollout_ref.actor.strategy"


def of(key: str, framework: str | None = "verl", *, step: int | None = None, ended: bool = False, **config: Any) -> Any:
    return remedy(key, framework=framework, config=config, last_good_step=step, has_ended=ended)


def listed(framework: str) -> set[str]:
    return {option for options in FRAMEWORKS[framework]["files"].values() for option in options}


def as_config(option: str) -> str:
    return option.removeprefix("--").replace("-", "_") if option.startswith("--") else option


def flat(options: Any) -> list[str]:
    return [options] if isinstance(options, str) else list(options)


LEARNING_RATES = {option for one in FRAMEWORKS.values() for option in flat(one["quantities"]["learning_rate"])}


@pytest.mark.parametrize("key", REMEDIES)
def test_a_remedy_says_what_to_do_first_and_then_in_words_that_suit_any_framework(key: str) -> None:
    for text in (REMEDIES[key].get("first") or LogprobMistake(key).fix, REMEDIES[key]["then"]):
        assert text.endswith(".")
        assert text.count(". ") <= 2
        assert re.match(r"[A-Z][a-z]|\{go_back\}", text), "it continues after `In the next run,`"
        names = {name for one in FRAMEWORKS for name in listed(one) if "." in name or "_" in name}
        assert not [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    unknown = of(key, None)
    assert "{" not in unknown.first + unknown.then
    assert (unknown.options, unknown.options_in_words, unknown.to_paste, unknown.release) == ({}, {}, (), "")
    assert unknown.not_known == "The framework is not known, so no option is named."


def test_an_unknown_key_is_an_error_and_a_framework_without_options_has_words_only() -> None:
    with pytest.raises(KeyError):
        of("no_such_finding")
    assert of("step_too_large", "EasyR1", learning_rate=1e-6).options == {}


@pytest.mark.parametrize("key", REMEDIES)
def test_after_the_end_the_words_are_for_the_next_run(key: str) -> None:
    ended = of(key, step=120, ended=True)
    assert ended.first.startswith("In the next run, ")
    assert ended.first[17].islower()
    assert "top and go back" not in ended.first + ended.then


def test_the_way_back_names_the_step_where_there_is_one() -> None:
    assert of("reward_collapse", step=120).first == (
        "Stop and go back to the last checkpoint at or before step 120, and halve the learning rate."
    )
    assert of("reward_collapse", step=120, ended=True).first == (
        "In the next run, start from the last checkpoint at or before step 120, and halve the learning rate."
    )
    assert "a checkpoint from before it began, if there is one" in of("reward_collapse").first


def test_each_change_is_of_a_known_quantity_or_switch_and_each_of_those_is_used() -> None:
    changes = [
        change for one in REMEDIES.values() for part in ("change", "then_change") for change in one.get(part, [])
    ]
    used = {change if isinstance(change, str) else change["of"] for change in changes} - {"checkpoint"}
    known = {name for one in FRAMEWORKS.values() for name in (*one["quantities"], *one["switches"])}
    assert used == known


def named_options(framework: str) -> Iterator[str]:
    """Yield the options that remedies and measures of a framework name, with those that they depend on."""
    one = FRAMEWORKS[framework]
    yield one["model"]
    for options in one["quantities"].values():
        yield from flat(options)
    for switch in one["switches"].values():
        yield from switch
        yield from (value.removeprefix("@") for value in switch.values() if value.startswith("@"))
    yield from one.get("defaults", {})
    for option, conditions in one.get("only_if", {}).items():
        yield from (option, *conditions)
    saved = one.get("checkpoint", {})
    yield from (saved[part] for part in ("option", "folder", "every", "kept") if part in saved)
    yield from saved.get("beside", {})
    for measure in DATA["measures"].values():
        yield from re.findall(r"[\w.-]+", measure.get("options", {}).get(framework, ""))[:1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_option_was_read_in_a_named_source_of_its_framework(framework: str) -> None:
    known_by = {as_config(option) for options in FRAMEWORKS[framework]["known_by"] for option in options}
    named = set(named_options(framework)) - {"model_name_or_path"}  # of TRL's scripts, never shown
    assert named - listed(framework) == set()
    assert {as_config(option) for option in listed(framework) - named} - known_by == set()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_with_options_has_its_learning_rate_and_its_limit(framework: str) -> None:
    assert {"learning_rate", "response_limit", "group_size"} <= set(FRAMEWORKS[framework]["quantities"])
    assert of("step_too_large", framework).options_in_words


OWN_CONFIGS: dict[str, Mapping[str, Any]] = {
    "verl": {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6}}}, "trainer": {"save_freq": 10}},
    "TRL": {"num_generations": 8, "per_device_train_batch_size": 4, "output_dir": "out"},
    "OpenRLHF": {"algo": {"advantage": {"estimator": "gae"}}, "train": {"max_epochs": 1}},
    "slime": {"rollout_max_response_len": 8192, "lr": 1e-6},
    "prime-rl": {"trainer": {"optim": {"lr": 1e-6}}, "orchestrator": {"group_size": 8}},
    "NeMo-RL": {"grpo": {"num_generations_per_prompt": 16}, "policy": {"precision": "bfloat16"}},
    "SkyRL": {"trainer": {"algorithm": {"advantage_estimator": "grpo"}}, "generator": {"n_samples_per_prompt": 5}},
    "AReaL": {"gconfig": {"n_samples": 4}, "actor": {"path": "Qwen/Qwen2.5-1.5B"}},
    "ms-swift": {"rlhf_type": "grpo", "num_generations": 8, "per_device_train_batch_size": 4},
    "ROLL": {"actor_train": {"training_args": {"learning_rate": 1e-6}}, "rollout_batch_size": 64},
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_configuration_shows_its_framework(framework: str) -> None:
    assert framework_of_config(OWN_CONFIGS[framework]) == framework
    assert framework_of_config({"imported": {"format": "jsonl", "framework": framework}}) == framework


@pytest.mark.parametrize(
    ("config", "framework"),
    [
        ({VERL_LR: 1e-6}, "verl"),
        ({"per_device_train_batch_size": 4}, "TRL"),
        ({"per_device_train_batch_size": 4, "finetuning_type": "lora"}, None),
        ({"trainer": {"save_freq": 1}, "lr": 1e-6}, None),
        ({"actor_rollout_ref": {}, "gconfig": {}}, None),
        ({}, None),
        ({"imported": {"format": "csv", "framework": None}}, None),
    ],
)
def test_a_configuration_of_none_or_of_several_frameworks_shows_none(
    config: Mapping[str, Any], framework: str | None
) -> None:
    assert framework_of_config(config) == framework


PLAIN_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, 8, 0.0, 0.2, 0.28, 1.0, 3e-4]),
    st.floats(min_value=1e-9, max_value=1.0),
    st.sampled_from(
        ["1e-6", "true", "float16", "token", '"0.5_5.0"', "null", "megatron", "fsdp", "vllm:d4", "${x}", ""]
    ),
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, str, dict[str, Any], int | None]:
    framework = draw(st.sampled_from(sorted(FRAMEWORKS)))
    options = sorted(listed(framework))
    config = draw(st.dictionaries(st.sampled_from([as_config(option) for option in options]), PLAIN_VALUES))
    # Values that the switches set themselves, so that many are set already.
    switches = {
        as_config(option): value for one in FRAMEWORKS[framework]["switches"].values() for option, value in one.items()
    }
    for option in draw(st.sets(st.sampled_from(sorted(switches)))):
        config[option] = switches[option]
    return draw(st.sampled_from(sorted(REMEDIES))), framework, config, draw(st.none() | st.integers(0, 300))


@given(runs())
@settings(max_examples=100, deadline=None)
def test_a_rendered_option_is_the_framework_s_own_and_changes_something(
    run: tuple[str, str, dict[str, Any], int | None],
) -> None:
    key, framework, config, step = run
    found = remedy(key, framework=framework, config=config, last_good_step=step, has_ended=False)
    for values, in_words in (
        (found.options, found.options_in_words),
        (found.then_options, found.then_options_in_words),
    ):
        assert {*values, *in_words} <= listed(framework)
        assert len(values) + len(in_words) <= MAX_OPTIONS
        assert not set(values) & set(in_words)
        for option, value in values.items():
            present = config.get(as_config(option))
            assert plain_value(present) != plain_value(value or True), option
            assert not re.search(r"[@$]|what it is", value)
            if option in LEARNING_RATES:
                assert float(value) > 0
                assert Decimal(value) * 2 == Decimal(str(present))
    assert len(found.to_paste) == len(found.options)


LAG, CLIP, BONUS = "orchestrator.max_off_policy_steps", "epsilon_high", "actor_rollout_ref.actor.entropy_coeff"


@pytest.mark.parametrize(
    ("key", "framework", "option", "present", "value"),
    [
        # Half of a learning rate has all its digits.
        ("step_too_large", "verl", VERL_LR, 1e-6, "5e-7"),
        ("step_too_large", "verl", VERL_LR, "1e-6", "5e-7"),
        ("step_too_large", "verl", VERL_LR, 3.3333333e-7, "1.66666665e-7"),
        ("step_too_large", "verl", VERL_LR, 1.23456789012345e-06, "6.17283945061725e-7"),
        ("step_too_large", "verl", VERL_LR, 0.05, "0.025"),
        ("step_too_large", "verl", VERL_LR, "0.00002", "1e-5"),
        # A number of steps is halved to one at least, and one is left.
        ("stale_rollouts", "prime-rl", LAG, 8, "4"),
        ("stale_rollouts", "prime-rl", LAG, 3, "1"),
        ("stale_rollouts", "prime-rl", LAG, 1, None),
        # A clip range is raised only to the usual bound.
        ("entropy_collapse", "TRL", CLIP, 0.2, "0.28"),
        ("entropy_collapse", "TRL", CLIP, 4e-4, "0.00056"),
        ("entropy_collapse", "TRL", CLIP, 0.28, None),
        # What is to be 0 at most is set only above it.
        ("entropy_explosion", "verl", BONUS, 0.001, "0"),
        ("entropy_explosion", "verl", BONUS, 0, None),
    ],
)
def test_an_option_is_changed_from_what_it_is(
    key: str, framework: str, option: str, present: Any, value: str | None
) -> None:
    assert of(key, framework, **{option: present}).options.get(option) == value


@pytest.mark.parametrize("present", [None, "${lr}", "a schedule", True, float("nan")])
def test_half_of_what_is_not_known_is_said_in_words(present: Any) -> None:
    found = of("step_too_large", **{VERL_LR: present})
    assert found.options == {}
    assert found.options_in_words == {VERL_LR: "half of what it is"}


def test_without_a_configuration_the_relation_is_said_and_what_is_lacking() -> None:
    assert of("entropy_explosion").options_in_words[BONUS] == "at most 0"
    assert of("entropy_collapse", "TRL", epsilon_high=None).options_in_words[CLIP].endswith("what it is, 0.28 at most")
    found = of("step_too_large")
    assert found.options_in_words == {VERL_LR: "half of what it is"}
    assert found.not_known == f"Not in the configuration: {VERL_LR}."
    assert of("step_too_large", **{VERL_LR: 1e-6}).not_known == ""


def test_what_is_set_already_is_left_out_and_then_the_next_thing_comes_first() -> None:
    option = "algorithm.filter_groups.enable"
    to_do, done = of("no_learning_signal"), of("no_learning_signal", **{option: True})
    assert to_do.options == {option: "true"}
    assert (done.first, done.then, done.options) == (to_do.then, "", {})


def test_a_default_counts_as_set_but_is_not_taken_for_granted_without_a_configuration() -> None:
    words = REMEDIES["temperature"]
    assert of("temperature").first == words["first"]
    assert of("temperature").options == {}
    assert of("temperature", **{VERL_LR: 1e-6}).first == words["then"]


def test_routing_that_is_replayed_already_leaves_the_filter_of_tokens() -> None:
    replayed = {
        VERL_STRATEGY: "megatron",
        "actor_rollout_ref.actor.megatron.router_replay.mode": "R3",
        "actor_rollout_ref.rollout.enable_rollout_routing_replay": True,
    }
    assert set(of("moe_routing", **{VERL_STRATEGY: "megatron"}).options) == set(replayed) - {VERL_STRATEGY}
    assert set(of("moe_routing", **replayed).options) == {
        "algorithm.rollout_correction.rollout_is",
        "algorithm.rollout_correction.rollout_is_threshold",
    }


def test_an_option_that_does_not_count_in_this_run_is_not_named() -> None:
    fsdp, megatron = (of("engine_mismatch", **{VERL_STRATEGY: name}).options for name in ("fsdp2", "megatron"))
    assert set(fsdp) == {"actor_rollout_ref.rollout.dtype", "actor_rollout_ref.actor.fsdp_config.dtype"}
    assert set(megatron) == {"actor_rollout_ref.rollout.dtype", "actor_rollout_ref.actor.megatron.dtype"}
    unknown = of("engine_mismatch")
    assert unknown.options == {}
    assert unknown.options_in_words["actor_rollout_ref.actor.megatron.dtype"] == (
        f"float16, where {VERL_STRATEGY} is megatron"
    )


def test_an_option_takes_the_value_of_another() -> None:
    config = {"rollout.backend": "sglang:d4p1t1", "actor.dtype": "bfloat16", "sglang.dtype": "float16"}
    assert of("engine_mismatch", "AReaL", **config).options == {"sglang.dtype": "bfloat16"}
    same = of("engine_mismatch", "AReaL", **{**config, "sglang.dtype": "bfloat16"})
    assert (same.first, same.options) == (REMEDIES["engine_mismatch"]["then"], {"sglang.disable_cuda_graph": "true"})
    follows = {"generator.sampling_params.temperature": 0.7, "trainer.algorithm.temperature": None}
    assert of("temperature", "SkyRL", **follows).options == {}
    assert of("temperature", "SkyRL", **{**follows, "trainer.algorithm.temperature": 1.0}).options == {
        "trainer.algorithm.temperature": "0.7"
    }


def test_a_value_that_refers_to_others_is_not_known() -> None:
    config = {"rollout.backend": "sglang", "actor.dtype": "bfloat16", "sglang.dtype": "${actor.dtype}"}
    taken = {"sglang.dtype": "the value of actor.dtype"}
    assert of("engine_mismatch", "AReaL", **config).options_in_words == taken
    config |= {"actor.dtype": "${dtype}", "sglang.dtype": "float16"}
    assert of("engine_mismatch", "AReaL", **config).options_in_words == taken


def test_what_to_set_if_it_persists_is_apart() -> None:
    clip = "actor_rollout_ref.actor.optim.clip_grad"
    assert of("step_too_large", **{clip: 1.0}).then_options == {clip: "0.5"}
    assert of("step_too_large").then_options_in_words == {clip: "half of what it is"}


@pytest.mark.parametrize(
    ("present", "value"),
    [
        (None, "null"),
        ("None", "null"),
        (True, "True"),
        (1, "1.0"),
        ("1e-6", "0.000001"),
        ("token_mask", '"token_mask"'),
        ([0.5, 5], "0.5 5.0"),
        ("Float16", "float16"),
    ],
)
def test_values_that_mean_the_same_are_the_same(present: Any, value: str) -> None:
    assert plain_value(present) == plain_value(value)
    assert plain_value(present) != plain_value("2.0")


@pytest.mark.parametrize(
    ("model", "parallel", "is_named"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 2, True),
        ("HuggingFaceTB/SmolLM2-135M", 4, True),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1, False),
        ("Qwen/Qwen2.5-1.5B-Instruct", None, False),
        ("Qwen/Qwen2.5-7B", 2, False),
        ("Qwen/Qwen3-30B-A3B", 2, False),
        ("mistralai/Mixtral-8x2B", 2, False),
        ("/models/mine", 2, False),
        (None, 2, False),
    ],
)
def test_tensor_parallelism_is_taken_away_only_from_a_small_model(
    model: str | None, parallel: int | None, is_named: bool
) -> None:
    config: dict[str, Any] = {"actor_rollout_ref.model.path": model, VERL_TP: parallel, VERL_STRATEGY: "fsdp"}
    config |= {"actor_rollout_ref.rollout.dtype": "float16", "actor_rollout_ref.actor.fsdp_config.dtype": "float16"}
    found = of("engine_mismatch", **config)
    assert "one GPU's tensor parallelism" in found.first
    assert (found.options.get(VERL_TP) == "1") is is_named
    assert VERL_TP not in found.options_in_words


def test_a_checkpoint_is_the_last_one_by_the_last_good_step() -> None:
    saved = {"trainer.save_freq": 20, "trainer.default_local_dir": "checkpoints/a"}
    found = of("not_a_number", step=119, **saved)
    assert found.options == {
        "trainer.resume_mode": "resume_path",
        "trainer.resume_from_path": "checkpoints/a/global_step_100",
    }
    assert found.first.startswith("Stop and go back to the checkpoint of step 100, and look at")
    assert of("not_a_number", "TRL", step=119, output_dir="out", save_steps=50).to_paste == (
        'resume_from_checkpoint="out/checkpoint-100"',
    )
    assert of("not_a_number", "prime-rl", step=119, ckpt={"interval": 25}).to_paste == ("resume.step = 100",)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"trainer.save_freq": 20},
        {"trainer.save_freq": 20, "trainer.default_local_dir": "checkpoints/${trainer.project_name}"},
        {"trainer.save_freq": -1, "trainer.default_local_dir": "a"},
        {"trainer.save_freq": 20, "trainer.default_local_dir": "a", "trainer.max_actor_ckpt_to_keep": 2},
    ],
)
def test_a_checkpoint_that_is_not_known_or_perhaps_deleted_is_said_in_words(saved: dict[str, Any]) -> None:
    found = of("not_a_number", step=119, **saved)
    assert found.options == {}
    assert set(found.options_in_words) == {"trainer.resume_mode", "trainer.resume_from_path"}


def test_before_the_first_checkpoint_the_way_back_is_the_start() -> None:
    found = of("not_a_number", step=7, **{"trainer.save_freq": 20, "trainer.default_local_dir": "a"})
    assert (found.options, found.options_in_words) == ({}, {})
    assert "the start, as no checkpoint was saved by step 7" in found.first


def test_options_are_written_as_their_framework_takes_them() -> None:
    assert of("step_too_large", **{VERL_LR: 1e-6}).to_paste == (f"{VERL_LR}=5e-7",)
    assert of("step_too_large", "slime", lr=1e-6).to_paste == ("--lr 5e-7",)
    assert of("step_too_large", "OpenRLHF", actor={"adam": {"lr": 1e-6}}).to_paste == ("--actor.adam.lr 5e-7",)
    assert of("no_learning_signal", "OpenRLHF").to_paste == ("--algo.dynamic_filtering_enable",)
    assert of("moe_routing", "slime", use_rollout_routing_replay=True, use_tis=True).to_paste == ("--tis-clip 2.0",)
    assert of("step_too_large").release == "verl 0.9.1"


@pytest.mark.parametrize("framework", [*FRAMEWORKS, "EasyR1", None])
def test_a_reader_of_a_log_is_sent_neither_to_the_client_nor_to_another_framework(framework: str | None) -> None:
    own = listed(framework) if framework in FRAMEWORKS else set()
    others = {option for one in FRAMEWORKS for option in listed(one) if "." in option or len(option) > 6} - own
    for signal in (*DATA["measures"], *SIGNALS, "a_name_of_nobody"):
        clause = how_to_measure(signal, framework=framework, from_log=True)
        assert not re.search("log_batch|log_scalars|rollout_logprobs", clause)
        assert not [option for option in others if option in clause]
        assert re.search("log_batch|log_scalars", how_to_measure(signal, framework=framework, from_log=False))


@pytest.mark.parametrize(
    ("signal", "framework", "clause"),
    [
        ("mismatch_kl_k3", "verl", "set actor_rollout_ref.rollout.calculate_log_probs=true"),
        ("agreement", "TRL", "set use_vllm=True, vllm_importance_sampling_correction=True"),
        ("agreement", "slime", "set --get-mismatch-metrics"),
        ("agreement", "ROLL", "look for it in the other logs of the run: ROLL logs it without an option"),
        (
            "agreement",
            "Search-R1",
            "log the mean difference between the log-probs of the rollout engine and of the trainer",
        ),
        ("entropy", "verl", "set actor_rollout_ref.actor.calculate_entropy=true"),
        ("reward_std", "verl", "log the mean reward of each step"),
    ],
)
def test_a_reader_of_a_log_is_told_the_option_of_the_framework(signal: str, framework: str, clause: str) -> None:
    assert how_to_measure(signal, framework=framework, from_log=True) == clause


def test_a_client_is_told_the_argument_and_the_option_of_its_framework_that_gives_it() -> None:
    assert how_to_measure("agreement", framework="TRL", from_log=False) == (
        "set use_vllm=True, vllm_importance_sampling_correction=True, or "
        "pass rollout_logprobs and old_logprobs, or logprobs, to log_batch"
    )
    assert how_to_measure("zero_variance_groups", framework="verl", from_log=False) == (
        "pass rewards and group_ids to log_batch"
    )
    assert (
        how_to_measure("tokens_per_s", framework=None, from_log=False)
        == 'call log_scalars(step, {"tokens_per_s": ...})'
    )


def test_a_reported_checkpoint_is_named_with_its_path_whatever_the_configuration_says() -> None:
    saved = [SavedCheckpoint(50, "/c/50"), SavedCheckpoint(90, "/other/90"), SavedCheckpoint(121, "/c/121")]
    verl = {"trainer.save_freq": 20, "trainer.default_local_dir": "checkpoints/a", "trainer.max_actor_ckpt_to_keep": 1}

    def named(step: int | None, **config: Any) -> Any:
        known = {**verl, **config}
        return remedy(
            "reward_collapse", framework="verl", config=known, last_good_step=step, has_ended=False, checkpoints=saved
        )

    found = named(120)
    assert (found.checkpoint_step, found.checkpoint_path) == (90, "/other/90")
    assert found.checkpoint == "Checkpoint to go back to: /other/90 (step 90)."
    assert found.first.startswith("Stop and go back to the checkpoint of step 90, and halve")
    assert found.options["trainer.resume_from_path"] == "/other/90"
    none = named(49)
    assert (none.checkpoint_step, none.checkpoint) == (None, "No checkpoint was saved by step 49.")
    assert "the start, as no checkpoint was saved by step 49" in none.first
    assert "trainer.resume_from_path" not in {**none.options, **none.options_in_words}
    assert named(None).checkpoint == ""
    saved[1] = SavedCheckpoint(90, "/c/$(reboot)")
    assert named(120).options_in_words["trainer.resume_from_path"] == "the checkpoint of step 90"


def test_whether_there_is_a_checkpoint_is_said_as_far_as_it_is_known() -> None:
    def said(**given: Any) -> str:
        known = {"framework": None, "config": {}, "last_good_step": 30, "has_ended": False, "checkpoints": (), **given}
        return str(remedy("engine_mismatch", **known).checkpoint)

    assert said() == "No checkpoint is known: the trainer has reported none."
    assert said(config={"launch": {"reports_checkpoints": True}}) == "No checkpoint was saved by step 30."
    assert said(checkpoints=None) == said(config={"imported": {"framework": "verl"}}) == ""
    verl = {"trainer.save_freq": 20, "trainer.default_local_dir": "checkpoints/a"}
    by_configuration = said(framework="verl", config=verl)
    assert by_configuration.endswith("that of step 20 by the configuration; its path is not reported.")
