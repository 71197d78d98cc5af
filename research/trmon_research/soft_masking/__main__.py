"""Runs the pairs that the file lacks and prints the table: python -m trmon_research.soft_masking [--pairs N]"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from msgspec import structs

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.soft_masking.differences import table
from trmon_research.soft_masking.pair_arms import ARM_UPDATES, PREFIX_UPDATES, PairOutcome, run_pair
from trmon_research.sweep.sweep_plan import configurations_of

PATH = Path(__file__).parents[2] / "data" / "soft_masking.json"
MECHANISMS = ("staleness", "quantisation")
SEED = 22
PAIRS = 12


def main() -> None:
    """Run, store each pair as it ends, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how many; 0 prints the stored ones only")
    n_pairs = parser.parse_args().pairs
    pairs = read_pairs()
    known = {pair.run for pair in pairs}
    for config in _configurations(n_pairs):
        if config.run_name not in known:
            pairs.append(run_pair(config))
            PATH.write_bytes(msgspec.json.format(msgspec.json.encode(pairs), indent=1) + b"\n")
    print(table(pairs))


def read_pairs() -> list[PairOutcome]:
    """Return the stored pairs."""
    return msgspec.json.decode(PATH.read_bytes(), type=list[PairOutcome]) if PATH.exists() else []


def _configurations(n_pairs: int) -> list[ExperimentConfig]:
    """Return configurations of each mechanism in turn, all of one task and architecture, whose starts are cheap."""
    n_updates = PREFIX_UPDATES + ARM_UPDATES
    # The plan has few configurations of some mechanisms, and drawing more of those would not end.
    n_each = -(-n_pairs // len(MECHANISMS))
    drawn = [configurations_of(name, seed=SEED, n_updates=n_updates, n=n_each) for name in MECHANISMS]
    in_turn = (config for turn in zip(*drawn, strict=True) for config in turn)
    return [structs.replace(config, task="add", architecture="moe") for config in in_turn][:n_pairs]


if __name__ == "__main__":
    main()
