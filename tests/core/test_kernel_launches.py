"""Kernels compiled by a thread: with Triton's own compiler for a device that this machine need not have."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.core.triton_device import without_interpreter
from tests.fixtures.command import run_python
from trmon_client.core.kernel_launches import BackgroundTasks, StillCompiling

PROCESS = """
import threading
from types import SimpleNamespace

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from trmon_client.core.divergence.logits import check_logits
from trmon_client.core.inputs.checked_inputs import check_inputs
from trmon_client.core.kernel_launches import StillCompiling, compiling_elsewhere, imported
from trmon_client.core.reduction.token_terms import DEFAULT_CLIP

launched, compiled = [], []


class Launcher:
    def __init__(self, source, metadata):
        pass

    def __call__(self, *grid):
        launched.append(threading.current_thread().name)


class Driver:  # of a device that loads what is compiled for it, and runs nothing
    launcher_cls = Launcher
    utils = SimpleNamespace(
        load_binary=lambda *_: (object(), 1, 100, 0, 1024), get_device_properties=lambda _: {"max_shared_mem": 232448}
    )
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)


driver.set_active(Driver())
knobs.runtime.jit_post_compile_hook = lambda *_, **__: compiled.append(threading.current_thread().name)


def columns(horizon):
    logp = -torch.rand(4, horizon)
    inputs = check_inputs(rollout_logprobs=logp, old_logprobs=logp, logprobs=logp, mask=logp < 0, advantages=[1.0] * 4)
    module = imported("trmon_client.core.triton_columns.reduce")
    module.reduce_stretches(inputs.mapped(torch.as_tensor), clip=DEFAULT_CLIP)


def divergences(vocabulary):
    logits = {name: torch.rand(2, 3, vocabulary) for name in ("rollout_logits", "logits")}
    module = imported("trmon_client.core.divergence.triton_kernel")
    module.triton_divergences(check_logits(logits, mask=torch.ones(2, 3)), target="logits", variations={})


def outcome(call, size):
    try:
        with compiling_elsewhere():
            call(size)
        return "launched"
    except StillCompiling:
        return "still compiling"
    finally:
        for thread in threading.enumerate():
            if thread.name == "trmon-compiler":
                thread.join()


for call, sizes in ((columns, (640, 640, 640, 656, 641, 641)), (divergences, (64, 64, 64, 65, 65))):
    print([outcome(call, size) for size in sizes])
print(sorted(set(compiled)), len(compiled), set(launched))
"""


@pytest.mark.slow
def test_a_thread_compiles_what_the_launches_of_a_trainer_then_find_without_its_memory() -> None:
    later = ["still compiling", "launched"]
    assert without_interpreter(PROCESS)[-3:] == [
        # The first call imports Triton, which also is left to a thread.
        str(["still compiling", *later, "launched", *later]),
        str(["still compiling", *later, *later]),
        "['trmon-compiler'] 4 {'MainThread'}",
    ]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trmon_client.core.divergence import triton_kernel
from trmon_client.core.triton_columns import kernel, reduce


def compiles(kernel, dtype, *, pointers, types, constants, options):
    given = dict.fromkeys(kernel.arg_names, "i64") | dict.fromkeys(constants, "constexpr")
    given |= dict.fromkeys(pointers, f"*{dtype}") | types
    source = ASTSource(kernel, signature=given, constexprs=constants)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(dtype, len(built.asm["cubin"]) > 0)


constants = {"HAS_SUPPORT": True, "TV": True, "TILE": triton_kernel.TILE, "WIDE": triton_kernel.MAX_SHIFTED}
constants |= {"THREADS": triton_kernel.TILE // triton_kernel.PER_THREAD}
types = dict.fromkeys(("n_tokens", "horizon", "vocabulary"), "i32")
types |= {"mask_ptr": "*u8", "support_ptr": "*u8", "sums_ptr": "*fp64"}
options = {"num_warps": triton_kernel.N_WARPS, "maxnreg": triton_kernel.MAX_REGISTERS}
given = {"types": types, "constants": constants, "options": options}
for dtype in ("bf16", "fp32"):
    compiles(triton_kernel._kernel, dtype, pointers=("a_ptr", "b_ptr"), **given)

constants = {"THREE": True, "ADVANTAGES": "token", "CLIP_LOW": 0.2, "CLIP_HIGH": 0.2, "CLIP_DUAL": 3.0}
constants |= {"N_TILES": reduce.SHORT, "TILE": reduce.TILE, "THREADS": reduce.TILE // reduce.PER_THREAD}
types = dict.fromkeys(("n_sequences", "horizon"), "i32") | {"table_ptr": "*fp64", "counter_ptr": "*i32"}
types |= {"mask_ptr": "*u8", "advantage_ptr": "*fp32", "edges_ptr": "*fp32"}
given = {"types": types, "constants": constants, "options": {"num_warps": reduce.N_WARPS}}
for dtype in ("bf16", "fp64"):
    compiles(kernel.columns_kernel, dtype, pointers=("first_ptr", "second_ptr", "third_ptr"), **given)
"""


@pytest.mark.slow
def test_the_kernels_compile_without_a_device() -> None:
    assert without_interpreter(COMPILE) == ["bf16 True", "fp32 True", "bf16 True", "fp64 True"]


def test_a_task_runs_once_and_what_it_raises_is_raised_at_each_call() -> None:
    tasks, begun, finish = BackgroundTasks(), [], threading.Event()

    def fails() -> None:
        begun.append(threading.current_thread())
        assert finish.wait(30)
        raise SystemExit("a compiler gave up")

    for _ in range(2):
        with pytest.raises(StillCompiling):
            tasks.done("kind", fails)
    finish.set()
    begun[0].join()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="SystemExit: a compiler gave up"):
            tasks.done("kind", fails)
    assert len(begun) == 1
    assert not begun[0].daemon


SLOW_MODULE = """
import sys
import threading
import time
from pathlib import Path

from trmon_client.core.kernel_launches import StillCompiling, compiling_elsewhere, imported

folder = Path(sys.argv[1])
(folder / "slow_module.py").write_text("import time\\ntime.sleep(1.0)\\nvalue = 1\\n")
sys.path.insert(0, str(folder))
calls = 0
while True:
    began = time.perf_counter()
    try:
        with compiling_elsewhere():
            print(imported("slow_module").value, calls > 3, threading.active_count())
        break
    except StillCompiling:
        assert time.perf_counter() - began < 0.5
        calls += 1
        time.sleep(0.05)
"""


def test_a_module_that_a_thread_still_imports_is_not_awaited(tmp_path: Path) -> None:
    done = run_python(SLOW_MODULE, tmp_path)
    assert (done.stdout.split()[:2], done.returncode) == (["1", "True"], 0), done.stderr
