"""One rank of a group that shares a vocabulary, started by the test of streaming: computes columns and saves them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from trmon_client.core.divergence import HiddenStates, exact_streamed


def main(folder: Path, rank: int, world_size: int) -> None:
    """Compute the columns of this rank's part, from logits and from hidden states."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    with np.load(folder / "given.npz") as given:
        # Parts of different sizes, as those of a padded vocabulary are.
        part = np.array_split(np.arange(len(given["weight"])), world_size + 1)
        mine = np.concatenate(part[rank : rank + 1] if rank else part[:1] + part[-1:])
        options = {"mask": given["mask"], "group": distributed.group.WORLD, "tv": True, "sum_pi_squared": True}
        logits = (torch.from_numpy(given[name][..., mine]) for name in ("rollout_logits", "logits"))
        from_logits = exact_streamed(rollout_logits=next(logits), logits=next(logits), **options)
        heads = (HiddenStates(given[name], given["weight"][mine], temperature=0.7) for name in ("hidden", "new_hidden"))
        from_hidden = exact_streamed(rollout_logits=next(heads), logits=next(heads), **options)
    for name, columns in (("logits", from_logits), ("hidden", from_hidden)):
        np.savez(folder / f"{name}-{rank}.npz", **columns.by_name)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
