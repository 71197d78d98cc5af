"""Measures how far engines of equal weights differ by precision, bits, temperature and nucleus; prints tables.

PYTHONPATH=. python benchmarks/bench_preflight.py
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from tests.fixtures.tiny_transformer import TinyEngine, prompts, response_mask, tiny_engine
from trmon.domain.preflight.causes import PreflightResult, preflight
from trmon.domain.preflight.token_pairs import EngineScores

HEAD_SCALES = (3.0, 6.0, 12.0)
"""Scales of the head: a larger one makes the distributions more peaked."""


def main() -> None:
    """Compare each engine with the trainer in float32, on tokens that it sampled itself."""
    for head_scale in HEAD_SCALES:
        trainer = tiny_engine(head_scale=head_scale)
        table = Table("rollout", "largest |d|", "token TV p95", "kl_k3", "causes")
        table.title = f"mean probability of a token {_mean_probability(trainer):.2f}"
        for name, rollout in _engines(trainer):
            found = _compared(rollout, trainer)
            causes = ", ".join(cause.cause.value for cause in found.causes) or "-"
            figures = f"{found.max_abs_d:.3f}", f"{found.tv_p95:.4f}", f"{found.signals['kl_k3']:.1e}"
            table.add_row(name, *figures, causes)
        Console().print(table)


def _engines(trainer: TinyEngine) -> Iterator[tuple[str, TinyEngine]]:
    yield "float32", trainer
    yield "float16", replace(trainer, model=copy.deepcopy(trainer.model).half())
    yield "bfloat16", trainer.in_bfloat16()
    for bits in (8, 6, 5, 4):
        yield f"int{bits}", trainer.quantised(bits)
    for temperature in (0.7, 0.95, 1.05, 1.2):
        yield f"temperature {temperature}", replace(trainer, temperature=temperature)
    for top_p in (0.99, 0.95, 0.9):
        yield f"top-p {top_p}", replace(trainer, top_p=top_p)


def _compared(rollout: TinyEngine, trainer: TinyEngine) -> PreflightResult:
    tokens = rollout.sample(prompts())
    mask = response_mask(tokens)
    sides = [
        EngineScores.of(
            "engine", logprobs=engine.score(tokens)[:, 1:], mask=mask[:, 1:], logits=engine.all_logprobs(tokens)
        )
        for engine in (rollout, trainer)
    ]
    return preflight(*sides)


def _mean_probability(engine: TinyEngine) -> float:
    tokens = engine.sample(prompts())
    return float(engine.score(tokens)[response_mask(tokens)].exp().mean())


if __name__ == "__main__":
    main()
