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


@pytest.mark.parametrize(
    ("text", "framework", "step", "signals"),
    [
        (VERL, "verl", 12, {"grad_norm": 0.25, "lr": 1e-6, "length_limit_share": 0.125, "reward_mean": 0.5}),
        (TRL, "TRL", None, {"zero_variance_groups": 0.75, "mismatch_abs_log_ratio_max": 1.5, "loss": 0.0012}),
        (TRL_STRINGS, "TRL", None, {"reward_mean": 0.5, "lr": 1e-6}),
        (SWIFT, "ms-swift", 12, {"mismatch_kl_k3": 0.0011, "zero_variance_groups": 0.5}),
        (SLIME, "slime", 5, {"mismatch_abs_log_ratio_mean": 0.012, "staleness_kl_k1": 1e-4}),
        (SLIME_ROLLOUT, "slime", 5, {"reward_mean": 0.4}),
        (PRIME, "prime-rl", 7, {"total_kl_k3": 0.0012, "entropy": 0.4, "lr": 1e-6}),
        (OPENRLHF, "OpenRLHF", 9, {"mismatch_kl_k1": 0.0004, "clip_fraction": 0.01}),
        (SKYRL, "SkyRL", 3, {"mismatch_abs_log_ratio_mean": 0.01, "reward_mean": 0.45}),
        (NEMO, "NeMo-RL", 4, {"mismatch_kl_k3": 0.0012, "response_length_mean": 300.125}),
        (AREAL, "AReaL", 3, {"reward_mean": 0.45, "grad_norm": 0.2, "lr": 1e-6}),
    ],
    ids=[
        "verl",
        "TRL",
        "TRL 5",
        "ms-swift",
        "slime",
        "slime's rollout",
        *("prime-rl", "OpenRLHF", "SkyRL"),
        "NeMo",
        "AReaL",
    ],
)
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


def test_a_dictionary_without_a_step_has_that_of_the_progress_bar_before_it() -> None:
    bar = "  1%|▏         | 10/1000 [00:12<20:01,  1.21s/it]"
    assert rows_in(f"{bar}{TRL}")[0]["step"] == "10"
    assert rows_in(f"{bar}\r{TRL}\n")[0]["step"] == "10"


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
    assert rows["4"]["gen_kl_error"] == "0.0012"


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
