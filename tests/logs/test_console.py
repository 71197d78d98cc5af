"""Console output, shaped as each framework prints it."""

from __future__ import annotations

from typing import Any

import pytest

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.framework_names.translation import translate
from trmon.logs.console import read_console

VERL = (
    "\x1b[36m(TaskRunner pid=4242)\x1b[0m step:12 - global_seqlen/min:4096 - actor/entropy:0.31 - "
    "actor/pg_loss:-0.0123 - actor/pg_clipfrac:0.001 - actor/grad_norm:np.float64(0.25) - actor/lr:1e-06 - "
    "training/rollout_probs_diff_mean:0.0042 - critic/score/mean:0.5 - response_length/clip_ratio:0.125 - "
    "timing_s/step:81.5 - val-core/gsm8k/acc/mean@1:0.7"
)
TRL = (
    "{'loss': 0.0012, 'grad_norm': 0.4, 'learning_rate': 1e-06, 'num_tokens': 1024.0, "
    "'completions/mean_length': 200.5, "
    "'completions/clipped_ratio': 0.25, 'reward': 0.5, 'reward_std': 0.1, 'frac_reward_zero_std': 0.75, "
    "'sampling/sampling_logp_difference/mean': 0.01, 'sampling/sampling_logp_difference/max': 1.5, "
    "'entropy': 0.3, 'clip_ratio/region_mean': 0.0, 'epoch': 0.01}"
)
TRL_STRINGS = (
    "{'loss': '0.0012', 'grad_norm': 'nan', 'learning_rate': '1e-06', 'reward': '0.5', 'frac_reward_zero_std': '0.5', "
    "'epoch': '0.01'}"
)
SWIFT = (
    "{'loss': -0.01, 'grad_norm': 0.2, 'learning_rate': 1e-06, 'reward': 0.75, 'frac_reward_zero_std': 0.5, "
    "'rollout_correction/kl': 0.001, 'rollout_correction/k3_kl': 0.0011, 'global_step/max_steps': '12/400', "
    "'elapsed_time': '3m 2s', 'memory(GiB)': 40.1}"
)
SLIME = (
    "[2026-08-21 10:00:00] model.py:918 - step 5: {'train/loss': 0.01, 'train/pg_clipfrac': 0.002, "
    "'train/entropy_loss': 0.4, 'train/ppo_kl': 0.0001, 'train/train_rollout_logprob_abs_diff': 0.012, "
    "'train/grad_norm': 0.3, 'train/lr-pg_0': 1e-06, 'train/step': 5}"
)
SLIME_ROLLOUT = (
    "[2026-08-21 10:00:00] train_metric_utils.py:135 - rollout 5: {'rollout/raw_reward': 0.4, "
    "'rollout/response_lengths': 512.0}"
)
PRIME = (
    "10:00:00 SUCCESS Step 7 |   12.3s | Loss 0.0100 | Entropy 0.4000 | Mismatch KL 0.0012 | Grad. Norm 0.2000 | "
    "LR 1.00e-06 | Throughput 1000 tokens/s | MFU 31.0% | Peak Mem. 60.1 GiB"
)
OPENRLHF = (
    "✨ Global step 9: {'policy_loss': 0.01, 'actor_lr': 5e-07, 'ppo_clip_ratio': 0.01, 'ppo_kl': 0.001, "
    "'vllm_kl': 0.0004, 'reward': 0.6, 'response_length': 300.0, 'actor_grad_norm': 0.3, 'timing/step_total': 60.5}"
)
SKYRL = """2026-08-21 10:00:00 | INFO | Step 3:
{'generate/avg_num_tokens': '250.5000',
 'policy/grad_norm': '0.2000',
 'policy/policy_entropy': '0.3000',
 'policy/rollout_train_logprobs_abs_diff_mean': '0.0100',
 'reward/avg_raw_reward': '0.4500',
 'trainer/global_step': 3}"""
NEMO = """
========================= Step 4/100 =========================
▶ Preparing batch...

📊 Training Results:
  • Loss: 0.0100
  • Generation KL Error: 0.0012
  • Avg Reward: 0.4500
  • Mean Generation Length: 300.1250
  • Total step time: 60.50s
========================= Step 5/100 =========================
"""
AREAL = """20260821-10:00:00 StatsLogger INFO: Epoch 1/10 Step 3/100 Train step 3/1000 done.
╒════════════════════════════════╤════════════╤═══════════════════════════╤════════════╕
│ ppo_actor/task_reward/avg      │ 4.5000e-01 │ ppo_actor/update/grad_norm │ 2.0000e-01 │
├────────────────────────────────┼────────────┼───────────────────────────┼────────────┤
│ ppo_actor/update/entropy/avg   │ 3.0000e-01 │ ppo_actor/update/lr        │ 1.0000e-06 │
╘════════════════════════════════╧════════════╧═══════════════════════════╧════════════╛
"""


def rows_in(text: str) -> list[dict[str, Any]]:
    return [dict(row.values) for row in read_console(iter(text.splitlines(keepends=True))) if isinstance(row, LogRow)]


LINES: dict[str, tuple[str, str, int | None, dict[str, float]]] = {
    "verl": (VERL, "verl", 12, {"grad_norm": 0.25, "lr": 1e-6, "length_limit_share": 0.125, "reward_mean": 0.5}),
    "TRL": (TRL, "TRL", None, {"zero_variance_groups": 0.75, "mismatch_abs_log_ratio_max": 1.5, "loss": 0.0012}),
    "TRL 5": (TRL_STRINGS, "TRL", None, {"reward_mean": 0.5, "lr": 1e-6}),
    "ms-swift": (SWIFT, "ms-swift", 12, {"mismatch_kl_k3": 0.0011, "zero_variance_groups": 0.5}),
    "slime": (SLIME, "slime", 5, {"mismatch_abs_log_ratio_mean": 0.012, "staleness_kl_k1": 1e-4}),
    "slime's rollout": (SLIME_ROLLOUT, "slime", 5, {"reward_mean": 0.4}),
    "prime-rl": (PRIME, "prime-rl", 7, {"total_kl_k3": 0.0012, "entropy": 0.4, "lr": 1e-6}),
    "OpenRLHF": (OPENRLHF, "OpenRLHF", 9, {"mismatch_kl_k1": 0.0004, "clip_fraction": 0.01}),
    "SkyRL": (SKYRL, "SkyRL", 3, {"mismatch_abs_log_ratio_mean": 0.01, "reward_mean": 0.45}),
    "NeMo": (NEMO, "NeMo-RL", 4, {"mismatch_kl_k3": 0.0012, "response_length_mean": 300.125}),
    "AReaL": (AREAL, "AReaL", 3, {"reward_mean": 0.45, "grad_norm": 0.2, "lr": 1e-6}),
}


@pytest.mark.parametrize(("text", "framework", "step", "signals"), LINES.values(), ids=LINES)
def test_the_lines_of_a_framework_are_read(
    text: str, framework: str, step: int | None, signals: dict[str, float]
) -> None:
    noise = "INFO loading weights: {'a', 'b'} 10%|\nProcessed prompts: 100%|##| 64/64 {\n"
    (row,) = rows_in(f"warming up\n{text}\n")
    line = translate(row)
    assert (line.framework, line.update or line.step) == (framework, step)
    assert {name: line.signals[name] for name in signals} == signals
    assert rows_in(noise) == []


def test_the_duration_of_a_step_is_among_what_a_line_has() -> None:
    assert translate(rows_in(VERL)[0]).step_seconds == 81.5
    assert translate(rows_in(NEMO)[0]).step_seconds == 60.5


BAR = "  1%|▏         | 10/1000 [00:12<20:01,  1.21s/it]"


@pytest.mark.parametrize(
    "text", [f"{BAR}{TRL}", f"{BAR}\r{TRL}\n", f"\x1b[A{BAR}\n{TRL}\n", f"Training Progress:{BAR}\n\n{TRL}"]
)
def test_a_row_carries_the_count_of_the_newest_bar_and_states_no_step(text: str) -> None:
    (row,) = items_in(text)
    assert (row.bar, "step" in row.values) == (10, False)


@pytest.mark.parametrize(
    "description",
    [
        "Loading checkpoint shards:",
        "Map (num_proc=4):",
        "Generating train split:",
        "Tokenizing train dataset:",
        "eval:",
    ],
)
def test_bars_of_other_work_do_not_count(description: str) -> None:
    (row,) = items_in(f"{BAR}\r{description} 50%|##   | 5/10 [00:01<00:01]\n{TRL}")
    assert row.bar == 10


def test_bars_without_a_line_end_between_them_count() -> None:
    bars = "".join(f" {n}0%|#  | {n}/10 [00:0{n}<00:01,  1.00it/s]" for n in range(1, 4))
    assert [row.bar for row in items_in(f"{bars}\n{TRL}\n{TRL}{BAR}\n{TRL}")] == [3, 3, 10]


def test_a_dictionary_that_never_ends_is_not_read() -> None:
    assert rows_in("{'loss': 0.1,\n" + "'more': 0.2,\n" * 3000 + TRL) != []


def test_numbers_that_are_none_or_not_a_number_stay_what_they_are() -> None:
    (row,) = rows_in("{'loss': nan, 'reward': None, 'grad_norm': inf, 'entropy': tensor(0.3), 'list': [1, 2]}")
    assert row == {"loss": "nan", "reward": None, "grad_norm": "inf", "entropy": "0.3"}
    assert set(translate(row).nonfinite) == {"loss", "grad_norm"}


def items_in(text: str) -> list[Any]:
    return list(read_console(iter(text.splitlines(keepends=True))))


PLAIN_VERL = "step:12 - actor/entropy:0.31 - actor/pg_loss:-0.0123 - actor/grad_norm:np.float64(0.25) - actor/lr:1e-06"
VERL_ROW = {
    "step": "12",
    "actor/entropy": "0.31",
    "actor/pg_loss": "-0.0123",
    "actor/grad_norm": "0.25",
    "actor/lr": "1e-06",
}


@pytest.mark.parametrize("width", [20, 33, 40, 57, 64, 80, 101])
@pytest.mark.parametrize("prefix", ["", "\x1b[36m(TaskRunner pid=12, ip=10.0.0.1)\x1b[0m "])
def test_a_line_that_a_terminal_wrapped_is_one_row(width: int, prefix: str) -> None:
    parts = [PLAIN_VERL[start : start + width] for start in range(0, len(PLAIN_VERL), width)]
    wrapped = "\n".join(prefix + part for part in parts)
    noise = f"{prefix}Training Progress: 10%|# | 1/10 [00:10<01:30]\n{prefix}saved the checkpoint\n"
    assert rows_in(f"{noise}{wrapped}\n{noise}") == [VERL_ROW]
    assert rows_in("\n".join(line.rstrip() for line in f"{wrapped}\n{noise}".splitlines())) == [VERL_ROW]


def test_the_rest_of_a_wrapped_line_has_no_prefix() -> None:
    first, rest = PLAIN_VERL[:60], PLAIN_VERL[60:]
    text = f"(TaskRunner pid=12) {first}\n{rest}\n(WorkerDict pid=13) loaded\n"
    assert rows_in(text) == [VERL_ROW]


def test_processes_that_print_between_the_lines_of_each_other_are_told_apart() -> None:
    mine, other = SKYRL.splitlines(), NEMO.splitlines()
    lines = [f"(Trainer pid=1) {line}" for line in mine]
    others = [f"(Other pid=2) {line}" for line in other]
    mixed = [line for pair in zip(lines, others, strict=False) for line in pair] + others[len(lines) :]
    rows = {row["step"] if "step" in row else row["trainer/global_step"]: row for row in rows_in("\n".join(mixed))}
    assert rows["3"]["reward/avg_raw_reward"] == "0.4500"
    assert rows["4"]["Generation KL Error"] == "0.0012"


def test_what_was_cut_off_is_not_lost_without_a_word() -> None:
    assert rows_in("step:3 - actor/lr:1e-06 - actor/pg_l") == [{"step": "3", "actor/lr": "1e-06", "actor/pg_l": ""}]
    assert rows_in("step:3 - actor/lr:1e-06(Worker pid=1) x - a:1") == [
        {"step": "3", "actor/lr": "1e-06(Worker pid=1) x", "a": "1"}
    ]
    assert items_in("noise\n{'loss': 0.5,\n 'reward': 0") == [
        LogDefect(2, "begins a dictionary that does not end", is_end=True)
    ]


def test_a_row_knows_its_line() -> None:
    text = f"x\n{PLAIN_VERL}\nx\n{AREAL}\n{NEMO}\n{TRL}\n{PRIME}"
    lines = text.splitlines()
    for row in items_in(text):
        assert str(row.values.get("step", "{'loss'")) in lines[row.line - 1]


def test_fields_between_pipes_keep_their_labels_without_units() -> None:
    (row,) = rows_in(PRIME)
    assert {name: row[name] for name in ("step", "Mismatch KL", "Grad. Norm", "LR", "MFU", "Peak Mem.")} == {
        "step": "7",
        "Mismatch KL": "0.0012",
        "Grad. Norm": "0.2000",
        "LR": "1.00e-06",
        "MFU": "0.31",
        "Peak Mem.": "60.1",
    }


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "12:00:00 SUCCESS Step 28 | Time: 73s | Reward: 0.38 | Seq. Length: 1,024.5 tokens/sample | Async Level: 1",
            {"step": "28", "Time": "73", "Reward": "0.38", "Seq. Length": "1024.5", "Async Level": "1"},
        ),
        ("[grpo] 3/100 | loss=0.1 | reward=0.5", {"step": "3", "loss": "0.1", "reward": "0.5"}),
        ("INFO:trainer:step=3 loss=0.1 reward=nan", {"step": "3", "loss": "0.1", "reward": "nan"}),
        ("loss=0.1 step=3", {"step": "3", "loss": "0.1"}),
        ("Epoch 3/10, Step 20/200, loss: 0.5", {"epoch": "3", "step": "20", "loss": "0.5"}),
        ("Epoch [1/3] Step [20/200] Loss: 0.5", {"epoch": "1", "step": "20", "Loss": "0.5"}),
        ("iter 10: loss 4.2, time 123ms, lr 1e-5", {"iteration": "10", "loss": "4.2", "time": "0.123", "lr": "1e-5"}),
        (
            " iteration       12/   100 | consumed samples:      32 | lm loss: 1.034E+01 | grad norm: 1.2 |",
            {"iteration": "12", "consumed samples": "32", "lm loss": "1.034E+01", "grad norm": "1.2"},
        ),
        ("step: 100, accuracy: 75%, reward: 0.5", {"step": "100", "accuracy": "0.75", "reward": "0.5"}),
        (
            "[step 1/200] correct=3/4 rewards=['0.80', '0.80', '0.20'] loss=-0.005 lr=0.00e+00",
            {"step": "1", "rewards": "0.6", "loss": "-0.005", "lr": "0.00e+00"},
        ),
        ("step 3 rewards: tensor([-1., 0., -1., 0.]) loss=0.5", {"step": "3", "rewards": "-0.5", "loss": "0.5"}),
        ("Step 5 | rewards: [0.1, nan] | tags: [a, 1] | loss: 0.2", {"step": "5", "rewards": "nan", "loss": "0.2"}),
    ],
)
def test_a_line_of_fields_is_a_row(line: str, row: dict[str, str]) -> None:
    assert rows_in(f"warming up\n{line}\n") == [row]


@pytest.mark.parametrize(
    "line",
    [
        "Step 3: generated 128 samples in 4.2s",
        "INFO metrics.py:455] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 12.1 tokens/s",
        "TrainingArguments(output_dir='x', logging_steps=1, max_steps=100, loss_type='grpo')",
        "Namespace(step=3, learning_rate=1e-6, loss='grpo')",
        "[LOG] step=10, skipped=0, mom=[(0.9, 0.95)]",
        "reward: 0.5, loss: 0.1",
        "2026-11-28 10:00:00 | INFO | Saved the checkpoint at step 3",
    ],
)
def test_a_line_without_a_step_or_a_metric_is_no_row(line: str) -> None:
    assert rows_in(line) == []


def test_bullets_without_a_heading_are_rows_that_end_where_a_label_comes_again() -> None:
    bullets = "  • Loss: 0.0100\n  • Avg Reward: 0.4500\n  • Total step time: 60.50s\n"
    assert (
        rows_in(f"📊 Training Results:\n{bullets}\n{bullets}")
        == [{"Loss": "0.0100", "Avg Reward": "0.4500", "Total step time": "60.50"}] * 2
    )
    assert rows_in(NEMO)[0] == {
        "step": "4",
        "Loss": "0.0100",
        "Generation KL Error": "0.0012",
        "Avg Reward": "0.4500",
        "Mean Generation Length": "300.1250",
        "Total step time": "60.50",
    }


def test_bullets_of_a_validation_are_told_apart() -> None:
    text = "=== Step 4/9 ===\n📊 Validation Results:\n  • Accuracy: 0.5\n📊 Training Results:\n  • Avg Reward: 0.4\n"
    assert rows_in(text) == [{"step": "4", "validation/Accuracy": "0.5", "Avg Reward": "0.4"}]


def verl_line(step: int) -> str:
    return f"step:{step} - critic/score/mean:0.5 - actor/grad_norm:0.3"


def test_a_run_that_crashed_and_resumed_in_another_process_keeps_the_order_of_the_file() -> None:
    first = [f"(TaskRunner pid=11) {verl_line(step)}" for step in range(1, 6)]
    resumed = [f"(TaskRunner pid=99) {verl_line(step)}" for step in range(4, 9)]
    rows = items_in("\n".join([*first, "(raylet) a worker died", *resumed]))
    assert [int(row.values["step"]) for row in rows] == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    assert [row.writer for row in rows] == ["TaskRunner pid=11"] * 5 + ["TaskRunner pid=99"] * 5


def test_an_open_row_does_not_hold_others_back_for_ever() -> None:
    lines = [f"(TaskRunner pid=11) {verl_line(1)}", *(f"(TaskRunner pid=99) {verl_line(n)}" for n in range(2, 400))]
    n_read = 0

    def counted() -> Any:
        nonlocal n_read
        for line in lines:
            n_read += 1
            yield line

    reading = read_console(counted())
    assert next(iter(reading)).line == 1
    assert n_read < 300
    assert [row.line for row in reading] == list(range(2, 400))


def test_what_ray_adds_to_a_repeated_line_is_no_value() -> None:
    line = f"(TaskRunner pid=11) {verl_line(1)} [repeated 7x across cluster]"
    assert rows_in(line) == [{"step": "1", "critic/score/mean": "0.5", "actor/grad_norm": "0.3"}]


CONFIGURATIONS = {
    "verl's banner": "{'actor_rollout_ref': {'rollout': {'response_length': None,\n"
    "                                   'temperature': 1.0,\n"
    "                                   'chat': \"{% if x %}{'a\",\n"
    "                                   'entropy_coeff': 0}}}",
    "options on one line": "config: {'learning_rate': 1e-06, 'beta': 0.04, 'num_iterations': 2}",
    "an indented JSON document": '{\n  "train_batch_size": 64,\n  "gradient_clipping": 1.0,\n  "seed": 42\n}',
    "a generation config": 'Generate config GenerationConfig {\n  "eos_token_id": 1,\n  "top_p": 0.9\n}\n',
    "tokens": "Updated tokens: {'eos_token_id': 151645, 'bos_token_id': None, 'pad_token_id': 151643}.",
    "YAML": "trainer:\n  step: 100\n  reward: 0.5\nepoch: 3",
    "arguments on many lines": "GRPOConfig(\nadam_beta1=0.9,\nlogging_steps=1,\nloss_type=grpo,\nmax_steps=100,\n)",
    "a part of verl's": "{'_target_': 'Actor', 'clip_ratio': 0.2, 'grad_clip': 1.0, 'optim': {'weight_decay': 0.1}}",
    "lists and None": "{'total_epochs': 15, 'logger': ['console', 'wandb'], 'path': None, 'names': [1, 2]}",
    "texts": "{'model': 'qwen', 'reward_fn': 'accuracy', 'beta': 0.04}",
    "a dataset": "DatasetDict({\n    train: Dataset({\n        features: ['prompt'],\n        num_rows: 10\n    })\n})",
}


@pytest.mark.parametrize("text", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=1) "])
def test_a_printed_configuration_is_no_row(text: str, prefix: str) -> None:
    lines = "\n".join(f"{prefix}{line}" for line in [*text.splitlines(), verl_line(1), TRL])
    assert [row.get("step", row.get("loss")) for row in rows_in(lines)] == ["1", "0.0012"]


def test_a_dictionary_that_does_not_end_hides_no_later_row() -> None:
    open_ended = "(A pid=1) config: {'prompt': \"don't {{ stop\",\n(A pid=1) 'more': {\n"
    assert rows_in(f"{open_ended}(A pid=1) {BAR}{TRL}") == rows_in(TRL)
    assert [row["step"] for row in rows_in(open_ended + f"(A pid=1) {verl_line(1)}\n(A pid=1) step 2: {TRL}")] == [
        "1",
        "2",
    ]


def test_a_dictionary_that_a_terminal_wrapped_is_one_row() -> None:
    for width in (40, 61, 80, 97):
        wrapped = "\n".join(TRL[start : start + width] for start in range(0, len(TRL), width))
        assert rows_in(f"{wrapped}\n{TRL}") == rows_in(TRL) * 2


def test_dictionaries_on_one_line_and_within_each_other_are_read() -> None:
    text = "{'loss': 0.1, 'reward': 0.5} {'loss': 0.2, 'reward': 0.6}\n{'step': 3, 'train': {'loss': 0.3}}"
    assert rows_in(text) == [
        {"loss": "0.1", "reward": "0.5"},
        {"loss": "0.2", "reward": "0.6"},
        {"step": "3", "train/loss": "0.3"},
    ]


@pytest.mark.parametrize(
    ("before", "step"),
    [
        ("Step 5/100: ", {"step": "5"}),
        ("[trainer] iteration=5 | ", {"iteration": "5"}),
        ("Step 5:\n", {"step": "5"}),
        ("saved the checkpoint of step 5\n", {}),
        ("epoch 5 ", {"epoch": "5"}),
    ],
)
def test_words_before_a_dictionary_may_state_its_step(before: str, step: dict[str, str]) -> None:
    assert rows_in(before + "{'loss': 0.1, 'reward': 0.5}") == [step | {"loss": "0.1", "reward": "0.5"}]
