"""Measures the CPU time that commands take to start: user and system, median of runs in turn."""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

COMMANDS = ("--help", "--version", "rules --help", "top --help", "show --help", "token --help", "serve --help")
RUNS = 3


def cpu_seconds(command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "trmon", *command.split()], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = [[cpu_seconds(command) for command in COMMANDS] for _ in range(RUNS)]
    print(f"{'':<20}CPU s")
    for command, measured in zip(COMMANDS, zip(*rounds, strict=True), strict=True):
        print(f"trmon {command:<14}{median(measured):.2f}")


if __name__ == "__main__":
    main()
