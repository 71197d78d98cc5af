"""The client's limits: sizes of queues and files, intervals and timeouts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes, intervals and timeouts of sending; tests shorten them."""

    queue_reports: int = 256
    queue_bytes: int = 64 << 20
    bundle_messages: int = 64
    bundle_bytes: int = 4 << 20
    segment_bytes: int = 8 << 20
    spool_bytes: int = 1 << 30
    connect_timeout_seconds: float = 2.0
    read_timeout_seconds: float = 10.0
    heartbeat_seconds: float = 30.0
    retry_first_seconds: float = 0.5
    retry_cap_seconds: float = 30.0
    failures_before_spool: int = 3
    store_timeout_seconds: float = 5.0
    exit_timeout_seconds: float = 2.0
    record_bytes: int = 256 << 20
    record_disk_bytes: int = 1 << 30
    record_exit_seconds: float = 10.0
