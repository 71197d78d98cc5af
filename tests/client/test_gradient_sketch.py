"""The random projection of gradients: what it keeps, how far it errs, and that ranks with shards add up."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.gradient_sketch import ROWS, SIZE, GradientSketch

WITHIN = 5 / math.sqrt(SIZE)
RANK = """
import sys
from pathlib import Path

import numpy
import torch

from trmon_client.gradient_sketch import GradientSketch

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
sketch = GradientSketch(group=torch.distributed.group.WORLD)
found = []
for seed in (1, 2):
    shard = torch.nn.Parameter(torch.zeros(3000))
    shard.grad = torch.randn(6000, generator=torch.Generator().manual_seed(seed))[3000 * rank : 3000 * (rank + 1)]
    found.append(sketch.project([shard]))
numpy.save(f"{folder}/{rank}.npy", numpy.array(found))


def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


# A thread of gloo that lives on aborts the process if it releases a tensor while the interpreter ends.
assert "pt_gloo_runloop" in threads()
torch.distributed.destroy_process_group()
assert "pt_gloo_runloop" not in threads()
try:
    sketch.project([shard])
except RuntimeError as error:
    assert "destroyed" in str(error)
else:
    raise AssertionError("a sketch whose group was destroyed projects")
"""


def parameters(*gradients: Any) -> list[torch.nn.Parameter]:
    """Return parameters that have these gradients; None: without one."""
    found = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros(7) if gradient is None else torch.zeros_like(gradient))
        parameter.grad = gradient
        found.append(parameter)
    return found


def random(seed: int, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def exact_cosine(first: Any, second: Any) -> float:
    return float((first * second).sum() / first.norm() / second.norm())


@pytest.mark.parametrize("mixed", [-1.0, 0.0, 3.0])
@pytest.mark.parametrize("shape", [(300, 4096), (5, SIZE * ROWS // 4 + 3)], ids=str)
def test_the_cosine_of_projections_is_near_that_of_the_gradients(mixed: float, shape: tuple[int, int]) -> None:
    first = random(1, *shape)
    second = random(2, *shape) + mixed * first
    sketch = GradientSketch()
    assert math.isnan(sketch.cosine(parameters(first)))
    assert sketch.cosine(parameters(second)) == pytest.approx(exact_cosine(first, second), abs=WITHIN)


def test_inner_products_are_kept_on_average_over_seeds() -> None:
    first, second = random(1, 64, 96), random(2, 64, 96) + 0.5 * random(1, 64, 96)
    sketches = [GradientSketch(seed=seed) for seed in range(20)]
    found = [float(one.project(parameters(first)) @ one.project(parameters(second))) for one in sketches]
    expected = float((first * second).sum())
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(expected, abs=5 * error)
    # The variance of a sketch of this size is at most (|x|^2 |y|^2 + <x, y>^2)/257.
    limit = math.sqrt((float(first.norm() * second.norm()) ** 2 + expected**2) / SIZE)
    assert np.std(found) < 1.3 * limit


def test_an_outlier_channel_does_not_fall_into_one_sum() -> None:
    """All of the gradient is in one column of a matrix whose width is a power of two."""
    first, second = torch.zeros(2048, 1024), torch.zeros(2048, 1024)
    first[:, 7], second[:, 7] = random(1, 2048), random(2, 2048)
    projected = GradientSketch().project(parameters(first))
    assert (projected != 0).all()
    sketch = GradientSketch()
    sketch.cosine(parameters(first))
    assert abs(sketch.cosine(parameters(second))) < WITHIN


def test_parts_of_a_model_do_not_share_signs() -> None:
    """Two layers with one gradient: were their signs alike, the projection would be twice that of one."""
    gradient = random(1, 100, 64)
    both = GradientSketch().project(parameters(gradient, gradient.clone()))
    assert float(both @ both) == pytest.approx(2 * float(gradient.norm()) ** 2, rel=0.5)


def test_a_sum_projects_to_the_sum_and_a_missing_gradient_moves_nothing() -> None:
    first, second, third = random(1, 500), random(2, 500), random(3, 33)
    sketch = GradientSketch()
    one, two = (sketch.project(parameters(gradient, None, third)) for gradient in (first, second))
    both = sketch.project(parameters(first + second, None, 2 * third))
    np.testing.assert_allclose(both, one + two, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_any_precision_is_projected(dtype: torch.dtype) -> None:
    gradient = random(1, 40, 300)
    expected = GradientSketch().project(parameters(gradient))
    found = GradientSketch().project(parameters(gradient.to(dtype)))
    np.testing.assert_allclose(found, expected, atol=0.02 * float(np.abs(expected).max()))


def test_gradients_that_are_missing_or_not_finite_have_no_cosine() -> None:
    sketch = GradientSketch()
    sketch.cosine(parameters(random(1, 10)))
    assert math.isnan(sketch.cosine(parameters(None)))
    assert math.isnan(sketch.cosine(parameters(torch.tensor([1.0, math.nan]))))


def test_ranks_with_shards_add_up_to_one_projection(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    first, second = (np.load(tmp_path / f"{rank}.npy") for rank in range(2))
    assert (first == second).all()
    whole = [random(seed, 6000) for seed in (1, 2)]
    for projected, gradient in zip(first, whole, strict=True):
        assert float(projected @ projected) == pytest.approx(float(gradient.norm()) ** 2, rel=0.5)
    found = float(first[0] @ first[1]) / float(np.linalg.norm(first[0]) * np.linalg.norm(first[1]))
    assert found == pytest.approx(exact_cosine(*whole), abs=WITHIN)
