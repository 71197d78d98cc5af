"""Counts what the Triton kernels need of each token, without a device: python benchmarks/count_instructions.py

It compiles them for sm_90, reads the machine code of their loops, and prints Markdown: the bytes of a token, read and
written, against the least possible; the instructions of a token by the unit that takes them; and how many tokens a
second the units and the memory of one chip allow. These are bounds, and no times.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trmon_client.core.divergence import triton_kernel
from trmon_client.core.triton_columns import kernel, reduce

TARGET = GPUTarget("cuda", 90, 32)
BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
MULTIPROCESSORS, CLOCK_HERTZ, COPY_BYTES_PER_SECOND = 132, 1.755e9, 3.0e12
"""Of an H100 SXM; its clock is the boost clock under load, its copies those of docs/benchmarks.md."""
THREADS_PER_CLOCK = {
    "any": 128,
    "float32": 128,
    "integer, compare, select": 64,
    "float64": 64,
    "exponential, logarithm, reciprocal": 16,
    "to or from 64 bits": 16,
    "exchange between threads": 32,
    "memory": 32,
}
"""Results a clock and multiprocessor, compute capability 9.0. Source: CUDA C++ Programming Guide, throughput table."""
OPCODES = {
    "float32": ("FADD", "FMUL", "FFMA", "FSWZADD"),
    "float64": ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"),
    "exponential, logarithm, reciprocal": ("MUFU",),
    "to or from 64 bits": ("F2F", "I2F", "F2I"),
    "exchange between threads": ("SHFL", "REDUX", "VOTE", "BAR", "LDS", "STS", "LDSM", "STSM"),
    "memory": ("LDG", "STG", "RED", "REDG", "ATOM", "ATOMG", "LDL", "STL", "LD", "ST"),
}


@dataclass(frozen=True)
class Kernel:
    """A kernel, its arguments when compiled, and how many tokens, or logits, a thread takes in one pass of its loop."""

    name: str
    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[str, ...]
    options: dict[str, Any]
    per_thread: int
    skips: bool
    least_bytes: float
    read_bytes: float

    def compiled(self) -> Any:
        """Return the kernel as a batch of the benchmarks compiles it: aligned, steps of 1."""
        names = self.function.arg_names
        signature = {name: "constexpr" if name in self.constants else self.signature[name] for name in names}
        constants = {(names.index(name),): value for name, value in self.constants.items()}
        attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in self.aligned}
        source = ASTSource(self.function, signature=signature, constexprs=constants, attrs=attributes)
        return triton.compile(source, target=TARGET, options=self.options)


def columns_kernel(*, three: bool, advantages: bool, is_padding: bool = False, dtype: str = "fp32") -> Kernel:
    """Return the kernel of the columns for a long batch with a bool mask; advantages are of sequences.

    Args: is_padding: of tiles without a token that counts, which only the mask is read of.
    """
    strides = ("first", "second", "third", "mask", "advantage")
    constants: dict[str, Any] = {
        "THREE": three,
        "ADVANTAGES": "sequence" if advantages else "none",
        "N_TILES": reduce.LONG,
    }
    constants |= {"CLIP_LOW": 0.2, "CLIP_HIGH": 0.2, "CLIP_DUAL": 3.0}
    constants |= {"TILE": reduce.TILE, "THREADS": reduce.TILE // reduce.PER_THREAD}
    constants |= {f"{name}_step": 1 for name in strides}
    signature = {f"{name}_ptr": f"*{dtype}" for name in ("first", "second", "third")}
    signature |= {"mask_ptr": "*u8", "advantage_ptr": "*u8", "edges_ptr": "*fp32"}
    signature |= {"table_ptr": "*fp64", "counter_ptr": "*i32", "n_sequences": "i32", "horizon": "i32"}
    signature |= {f"{name}_row": "i32" for name in strides}
    aligned = [name for name in signature if name != "n_sequences"]
    n_policies, n_tokens = 3 if three else 2, reduce.LONG * reduce.TILE
    policies = ("rollout_logprobs", "old_logprobs", "logprobs")[:n_policies]
    n_rows = len(kernel.names_of_sums(policies, advantages=constants["ADVANTAGES"]))
    n_rows += len(kernel.names_of_maxima(policies)) + 1
    least = 1 if is_padding else n_policies * 4 + 1
    name = f"columns of {'three' if three else 'two'} policies{' and advantages' if advantages else ''}"
    return Kernel(
        f"{name}, padding" if is_padding else name,
        kernel.columns_kernel,
        signature,
        constants,
        tuple(aligned),
        {"num_warps": reduce.N_WARPS},
        reduce.PER_THREAD,
        is_padding,
        least,
        least + 8 * n_rows / n_tokens,
    )


def divergence_kernel(dtype: str, *, aligned: bool = True) -> Kernel:
    """Return the kernel of exact divergences of contiguous logits, without total variation."""
    constants = {"HAS_SUPPORT": False, "TV": False, "TILE": triton_kernel.TILE, "WIDE": triton_kernel.MAX_SHIFTED}
    constants |= {"THREADS": triton_kernel.TILE // triton_kernel.PER_THREAD}
    names = [name for name in triton_kernel._kernel.arg_names if name not in constants]
    signature = dict.fromkeys(names, "i32") | {"a_ptr": f"*{dtype}", "b_ptr": f"*{dtype}"}
    signature |= {"mask_ptr": "*u8", "support_ptr": "*u8", "sums_ptr": "*fp64"}
    constants |= dict.fromkeys(("a_step", "b_step", "support_step"), 1)
    signature = {name: kind for name, kind in signature.items() if name not in constants}
    size = 4 if dtype == "fp32" else 2
    return Kernel(
        f"divergences of {dtype}, a logit of both{'' if aligned else ', any vocabulary'}",
        triton_kernel._kernel,
        signature,
        constants,
        tuple(name for name in signature if aligned or name.endswith("_ptr")),
        {"num_warps": triton_kernel.N_WARPS, "maxnreg": triton_kernel.MAX_REGISTERS},
        triton_kernel.PER_THREAD,
        True,
        2 * size,
        2 * size,
    )


SELDOM = 60
"""Lines that a branch skips to count as one: over a new largest logit, or over all of a tile that is padding."""


def loop_of(cubin: bytes, *, skips: bool) -> tuple[Counter[str], int]:
    """Return the opcodes of the shortest loop that reads and exponentiates, and the registers of a thread.

    Args: skips: whether branches are taken.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        sass = _run("nvdisasm", "-c", file.name)
        usage = _run("cuobjdump", "-res-usage", file.name)
    lines = [line.strip() for line in sass.splitlines()]
    labels = {line.rstrip(":"): i for i, line in enumerate(lines) if re.fullmatch(r"\.L_x_\d+:", line)}
    loops = []
    for i, line in enumerate(lines):
        target = re.search(r"\bBRA\b.*?`\((\.L_x_\d+)\)", line)
        if target and labels.get(target.group(1), i) < i:
            loops.append((labels[target.group(1)], i + 1))
    texts = {loop: "\n".join(lines[slice(*loop)]) for loop in loops}
    wanted = [loop for loop in loops if "LDG" in texts[loop] and "MUFU.EX2" in texts[loop]]
    begin, end = min(wanted, key=lambda loop: loop[1] - loop[0])
    body = set(range(begin, end))
    for i in range(begin, end) if skips else ():
        branch = re.search(r"@!?U?P\w+\s+BRA\b.*?`\((\.L_x_\d+)\)", lines[i])
        if branch and i + SELDOM < labels[branch.group(1)] < end:
            body -= set(range(i + 1, labels[branch.group(1)]))
    found = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)((?:\.[A-Z0-9_]+)*)")
    opcodes = Counter("".join(match.groups()) for i in sorted(body) if (match := found.search(lines[i])))
    return opcodes, int(re.findall(r"REG:(\d+)", usage)[-1])


def by_unit(opcodes: Counter[str]) -> Counter[str]:
    """Return the number of instructions by the unit that takes them."""
    units = {opcode: unit for unit, names in OPCODES.items() for opcode in names}
    found: Counter[str] = Counter()
    for name, n in opcodes.items():
        unit = units.get(name.split(".")[0], "integer, compare, select")
        is_wide = unit == "to or from 64 bits" and "64" not in name
        found["integer, compare, select" if is_wide else unit] += n
    return found


def _run(program: str, *arguments: str) -> str:
    return subprocess.run([BIN / program, *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    kernels = [
        columns_kernel(three=False, advantages=False),
        columns_kernel(three=True, advantages=True),
        columns_kernel(three=True, advantages=True, is_padding=True),
        divergence_kernel("fp32"),
        divergence_kernel("bf16"),
        divergence_kernel("bf16", aligned=False),
    ]
    units = list(THREADS_PER_CLOCK)[1:]
    print(f"Triton {triton.__version__}, sm_90: instructions of a token in the loop, clocks of a multiprocessor each\n")
    print(f"| kernel | instructions | {' | '.join(units)} | registers |\n|---|---:|{'---:|' * (len(units) + 1)}")
    bounds = []
    for one in kernels:
        opcodes, registers = loop_of(one.compiled().asm["cubin"], skips=one.skips)
        if "-v" in sys.argv:
            print(opcodes)
        counts = {unit: n / one.per_thread for unit, n in by_unit(opcodes).items()} | {"any": 0.0}
        counts["any"] = sum(counts.values())
        clocks = {unit: n / THREADS_PER_CLOCK[unit] for unit, n in counts.items()}
        cells = [f"{counts.get(unit, 0):.1f}, {clocks.get(unit, 0):.2f}" for unit in ("any", *units)]
        print(f"| {one.name} | {' | '.join(cells)} | {registers} |")
        bounds.append((one, max(clocks, key=clocks.__getitem__), max(clocks.values())))
    print("\n| kernel | bytes, least | bytes | the units allow, a second | which | the memory allows | of the copies |")
    print("|---|---:|---:|---:|---|---:|---:|")
    for one, unit, slowest in bounds:
        by_units, by_memory = MULTIPROCESSORS * CLOCK_HERTZ / slowest, COPY_BYTES_PER_SECOND / one.read_bytes
        rates = f"{by_units / 1e9:.0f}e9 | {unit} | {by_memory / 1e9:.0f}e9 | {min(1, by_units / by_memory):.0%}"
        print(f"| {one.name} | {one.least_bytes:g} | {one.read_bytes:.2f} | {rates} |")


if __name__ == "__main__":
    main()
