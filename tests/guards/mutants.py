"""Sixty faults that the tests must find: python -m tests.guards.mutants [AREA ...] [--write FILE]

Each is a fragment of code that occurs once in the product, wherever its file is, and its replacement; the
fault is made while the module is imported, so no file changes. Prints a line a fault: killed, survived, or why it was
not tried. TESTS says where each area is tested; a folder that moved is changed there.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

PRODUCT = ("trmon", "client/trmon_client")
TIMEOUT_SECONDS = 400
TESTS = {
    "columns": "tests/core/test_statistics.py tests/core/test_columns.py tests/core/reduction tests/core/inputs",
    "large": "tests/core/large_batches",
    "signals": "tests/core/signals",
    "policies": "tests/core/policies",
    "wire": "tests/core/wire",
    "ingest": "tests/ingest",
    "gate": "tests/ingest -k quota",
    "alerts": "tests/domain/alerts",
    "rules": "tests/domain/rules",
    "receivers": "tests/notify -k webhook",
    "database": "tests/store/database tests/store/test_durability.py",
    "writing": "tests/store/writing",
    "repositories": "tests/store/repositories",
    "rows": "tests/store/rows",
    "sending": "tests/client/sending",
}
Mutants = dict[str, list[tuple[str, str, str]]]
MUTANTS: Mutants = {
    "statistics": [
        ("columns", "series = d * d * (0.5 + d * (1 / 6))", "series = d * d * (0.5 - d * (1 / 6))"),
        ("columns", '"n_invalid": count(tokens.counts & ~tokens.valid)', '"n_invalid": count(~tokens.valid)'),
        ("columns", "(logp <= MAX_LOGPROB) & (logp > MIN_LOGPROB)", "(logp <= MAX_LOGPROB) & (logp >= MIN_LOGPROB)"),
        ("columns", "position = fraction * last\n", "position = fraction * (last + 1)\n"),
        ("columns", '"prefix_max_d": max_(prefix - excluded),', '"prefix_max_d": max_(prefix),'),
        ("columns", "both(self.above, gain), both(self.above, loss)", "both(self.above, gain), both(self.above, gain)"),
        ("large", "is_zero &= block.valid", "is_zero &= True"),
        ("signals", '"kl_k2": mean["sum_sq_d"] / 2,', '"kl_k2": mean["sum_sq_d"],'),
        ("signals", "np.log(sum_sq_weight / n)", "np.log10(sum_sq_weight / n)"),
        ("signals", "chi2_sn = variance / (1 + deviation) ** 2", "chi2_sn = variance / (1 + deviation)"),
    ],
    "acceptance": [
        ("policies", 'self._xp.where(columns["n_invalid"] > 0,', 'self._xp.where(columns["n_invalid"] > 1,'),
        ("policies", "return compared <= self.upper_compared", "return compared < self.upper_compared"),
        ("policies", "math.log(bound) if bound is not None and", "math.log2(bound) if bound is not None and"),
        ("policies", "failed & (value > criterion.upper_compared)", "failed & (value < criterion.upper_compared)"),
        ("policies", "violated = violated & criterion.has_sign(advantage)", "violated = violated & True"),
        ("policies", 'sum(counts.values()) - counts.get("empty", 0)', "sum(counts.values())"),
        ("policies", '!= "kl_not_exact" or kl_is != "exact"', '!= "kl_not_exact" or kl_is == "exact"'),
        ("policies", "_n_fitting(value - limit, excess_sum)", "_n_fitting(value, excess_sum)"),
        ("policies", 'advantage > 0 if self.where == "adv', 'advantage >= 0 if self.where == "adv'),
        (
            "wire",
            'np.packbits(np.asarray(accepted, dtype=bool), bitorder="little")',
            "np.packbits(np.asarray(accepted))",
        ),
    ],
    "ingest": [
        ("gate", "use.report_bytes + len(prepared.payload) > max_bytes", "use.report_bytes > 1e30 * max_bytes"),
        (
            "gate",
            "max_runs is not None and len(use.runs) >= max_runs",
            "max_runs is not None and len(use.runs) > max_runs",
        ),
        ("gate", "if use.tokens <= 0:", "if use.tokens <= -2:"),
        ("gate", "use.tokens -= n\n", "use.tokens -= 1\n"),
        ("gate", "use.report_bytes += len(prepared.payload)", "use.report_bytes += 0"),
        ("ingest", "report_digest(summary, parcel=parcel),", "report_digest(summary, parcel=parcel)[:0],"),
        ("ingest", '"stored" if result.status is WriteOutcome.STORED else "duplicate"', '"stored"'),
        ("ingest", "if version.policy.hash == known else", "if version.policy.hash != known else"),
        (
            "ingest",
            'if ack.status == "conflict":\n            raise',
            'if ack.status == "duplicate":\n            raise',
        ),
        ("ingest", "+ 0.0 for name in sorted(scalars)}", "+ 1.0 for name in sorted(scalars)}"),
    ],
    "alerts": [
        ("alerts", "until - WITHIN_STEPS < step <= until", "until - WITHIN_STEPS < step < until"),
        ("alerts", "if until_then < MAX_TRANSITIONS or", "if until_then <= MAX_TRANSITIONS or"),
        ("alerts", "in grouping_receivers and delivery.run_id is not None", "in grouping_receivers"),
        ("alerts", "return self.starts_at <= now < self.ends_at and", "return now < self.ends_at and"),
        ("alerts", "2.0 ** min(attempts - 1, 32)", "2.0 ** min(attempts, 32)"),
        ("alerts", "is_late = was_muted or delivery.rounds > 0 or", "is_late = delivery.rounds > 0 or"),
        ("alerts", "if alert.episode in context.acked and not must_repeat:", "if alert.episode in context.acked:"),
        (
            "rules",
            "return _decisive(reversed(self.parts), Truth.FALSE, reader)",
            "return _decisive(reversed(self.parts), Truth.TRUE, reader)",
        ),
        ("receivers", 'b"%d.%b" % (timestamp, body), hashlib.sha256', "body, hashlib.sha256"),
    ],
    "store": [
        ("database", '"PRAGMA synchronous = FULL",', '"PRAGMA synchronous = OFF",'),
        ("repositories", 'row["digest"] == stored["digest"] or is_same(', 'row["digest"] or is_same('),
        ("repositories", "first.setdefault(identity(row), row)", "first[identity(row)] = row"),
        ("writing", "n_waiting + len(queued) > self._max_waiting", "not self.alive"),
        ("repositories", "(table.id <= last_old) & (table.received_at < oldest)", "(table.id <= last_old)"),
        ("repositories", "done_with = sized.c.id <= state.report_id", "done_with = sized.c.id >= 0"),
        ("rows", '{"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, 0)}', '{"wire": (wire.WIRE_MAJOR, 0)}'),
        ("repositories", "& (_token.project.is_not_distinct_from(token.project))", ""),
        ("repositories", "end_at = min(end_at, old.expires_at)", "end_at = max(end_at, old.expires_at)"),
        ("repositories", '_delivery.due_at <= bindparam("now"), is_wanted,', "is_wanted,"),
    ],
    "sending": [
        ("sending", "len(self) >= self._limits.queue_reports", "len(self) > self._limits.queue_reports"),
        ("sending", "+ message.size_bytes > self._limits.queue_bytes", "> self._limits.queue_bytes"),
        ("sending", "if self._fills(1.0) and not is_last:", "if self._fills(1.0):"),
        ("sending", "del self._in_flight[:n]\n", "del self._in_flight[: n + 1]\n"),
        ("sending", "self._memory.extendleft(reversed(self._in_flight))", "self._memory.extendleft(self._in_flight)"),
        ("sending", "if chunks == index + 1:", "if chunks == index:"),
        ("sending", "while self.size_bytes > self._limits.spool_bytes:", "while self.size_bytes < 0:"),
        ("sending", "SPOOL_FULL, droppable[0].n_messages)", "SPOOL_FULL, 1)"),
        (
            "sending",
            "if taken and (size_bytes < 0 or len(taken) >= n_messages):",
            "if taken and len(taken) >= n_messages:",
        ),
        ("wire", "if zlib.crc32(message) == checksum:", "if message:"),
    ],
}


def product_sources() -> dict[Path, str]:
    """Return the text of every module of the product."""
    return {path: path.read_text() for folder in PRODUCT for path in Path(folder).resolve().rglob("*.py")}


def places(fragment: str, sources: Mapping[Path, str]) -> list[Path]:
    """Return the module of each place where a fragment occurs."""
    return [path for path, text in sources.items() for _ in range(text.count(fragment))]


def main() -> None:
    """Try the faults of the named areas, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", metavar="AREA", default=[*MUTANTS])
    parser.add_argument("--write", type=Path, help="append the lines to a file, too")
    given = parser.parse_args()
    sources = product_sources()
    _preload()
    for area in given.areas:
        for where, fragment, instead in MUTANTS[area]:
            began = time.monotonic()
            found = places(fragment, sources)
            if len(found) == 1:
                outcome = _tried(found[0], sources[found[0]].replace(fragment, instead), tests=TESTS[where])
            else:
                outcome = "not unique" if found else "not found"
            seconds = time.monotonic() - began
            line = f"{outcome:<10} {area:<10} {seconds:4.0f} s  {fragment.strip()!r} -> {instead.strip()!r}"
            print(line, flush=True)
            if given.write:
                with given.write.open("a") as file:
                    file.write(f"{line}\n")


def _preload() -> None:
    """Import what others wrote once: each fault is tried in a fork of this process."""
    for name in (
        "numpy",
        "torch",
        "hypothesis",
        "msgspec",
        "fastapi",
        "sqlalchemy",
        "alembic",
        "httpx",
        "uvicorn",
        "structlog",
    ):
        __import__(name)


def _tried(path: Path, text: str, *, tests: str) -> str:
    """Return whether the tests find a fault."""
    child = os.fork()
    if not child:
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            signal.alarm(TIMEOUT_SECONDS)
            _change(path, text)
            options = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default"]
            os._exit(int(pytest.main([*options, *tests.split()])))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {0: "survived", 1: "killed", -signal.SIGALRM: "killed", 2: "killed"}.get(code, f"error {code}")


def _change(path: Path, text: str) -> None:
    """Let one module be imported with another text."""
    read = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if Path(self.get_filename(fullname)).resolve() == path:
            return compile(text, str(path), "exec", dont_inherit=True)
        return read(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code


if __name__ == "__main__":
    sys.exit(main())
