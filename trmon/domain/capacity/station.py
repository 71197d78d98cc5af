"""The parts of a deployment that a workload can saturate, and the kinds of work that it brings them."""

from __future__ import annotations

from enum import Enum


class Station(Enum):
    """A resource: seconds of CPU time per second, or bytes per second."""

    API = "api"
    EVENT_LOOP = "event_loop"
    WORKER = "worker"
    DATABASE = "database"
    REDIS = "redis"
    LOG = "log"
    TABLES = "tables"
    NETWORK = "network"

    @property
    def counts_bytes(self) -> bool:
        """Whether it counts bytes; the others count seconds of CPU time."""
        return self in (Station.LOG, Station.TABLES, Station.NETWORK)


class Activity(Enum):
    """A kind of work, counted per second.

    `GROUP` is a group of messages that an API process commits together; `VIEW` a closed batch that an API process reads
    for its views; `SCRAPED_RUN` a run on a page of /metrics; `RUN` an active run, `PROCESS` an API process, each for a
    second.
    """

    REPORT = "report"
    SEQUENCE = "sequence"
    GROUP = "group"
    BATCH = "batch"
    VIEW = "view"
    HEARTBEAT = "heartbeat"
    SCRAPED_RUN = "scraped_run"
    RUN = "run"
    PROCESS = "process"
