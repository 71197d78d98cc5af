"""Settings: every TRMON_* variable the service reads; nothing else reads the environment."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from trmon.config.webhook_url import parse_webhook_url
from trmon_client.core.signals.batch_signals import SIGNALS

DEFAULT_PORT = 8642
RECEIVERS = {
    "webhook": "webhook_url",
    "slack": "slack_url",
    "pagerduty": "pagerduty_key",
    "alertmanager": "alertmanager_url",
}
"""The receivers there are, and the setting without which each is not configured."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

Names = Annotated[tuple[str, ...], NoDecode]
"""A list of names, separated by commas in the environment."""


class Settings(BaseSettings):
    """How the service runs; validated at start, the same for as long as it lives."""

    model_config = SettingsConfigDict(env_prefix="TRMON_", env_ignore_empty=True, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; any but loopback needs a token.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(Path("trmon-data"), description="Folder of the embedded database.")
    database_url: str | None = Field(
        None, description="Database to use instead of SQLite in the data folder, as a SQLAlchemy URL."
    )
    worker: Literal["process", "thread"] = Field(
        "process",
        description="Where the runs of a SQLite file are watched: in a process of its own, which lets two cores work, "
        "or in a thread of the service, which takes less memory.",
    )
    redis_url: SecretStr | None = Field(
        None, description="Redis that tells processes of each other at once; without, they look each second."
    )
    public_url: str | None = Field(None, description="The service's own URL as people reach it, for links in alerts.")

    allow_hosts: Names = Field(
        (), description="Host headers to answer, beside loopback names; empty on another address: any."
    )
    max_body_bytes: int = Field(
        64 << 20, ge=1024, description="Largest request body, before and after decompression, in bytes."
    )
    max_held_bytes: int = Field(
        256 << 20,
        ge=1024,
        description="Most bytes of request bodies in memory at once; what finds no room comes again.",
    )
    rate_per_second: float = Field(
        500.0, gt=0, description="Requests a second each token, or each address without one, may make."
    )
    rate_burst: int = Field(2000, ge=1, description="Requests that may come at once above the rate.")

    grace_seconds: float = Field(
        60.0, gt=0, description="How long an incomplete batch waits for its missing ranks, in seconds."
    )
    stall_floor_seconds: float = Field(
        120.0, gt=0, description="Shortest silence after which a run is stalled, in seconds."
    )
    stall_factor: float = Field(
        3.0, gt=1, description="A run is stalled after this many of its usual step times, if longer than the floor."
    )
    lease_seconds: float = Field(
        10.0, gt=1, description="How long the runs of a worker that died wait for another one, in seconds."
    )
    idle_after_seconds: float = Field(3600.0, gt=0, description="A run silent for longer leaves /metrics, in seconds.")

    retention_days: float = Field(
        30.0, gt=0, description="How long reports, notifications and ended silences are kept, in days; batches stay."
    )
    retention_run_bytes: int = Field(2 << 30, ge=0, description="Most bytes of reports kept of a run, the newest.")
    retention_bytes: int = Field(50 << 30, ge=0, description="Most bytes of reports kept in all, the newest.")
    retention_every_seconds: float = Field(3600.0, gt=0, description="How often the database is pruned, in seconds.")

    metrics_max_runs: int = Field(500, ge=0, description="Most runs on /metrics; the rest are counted.")
    metrics_max_scalars: int = Field(32, ge=0, description="Most trainer scalars a run has on /metrics.")
    metrics_signals: Names = Field(
        (), description="Signals on /metrics beside the core ones, by full name, e.g. mismatch_kl_k2."
    )

    rules_file: Path | None = Field(
        None, description="Rules of your own over the built-in ones, as YAML; read again when it changes."
    )

    webhook_url: SecretStr | None = Field(
        None, description="Where alerts are posted; https, or http to an allowed host."
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Secret that signs webhooks: plain text, or whsec_ and base64."
    )
    webhook_allow_hosts: Names = Field(
        (), description="Hosts of receivers that may be private, link-local or plain http, e.g. 127.0.0.1."
    )
    slack_url: SecretStr | None = Field(None, description="Incoming webhook of Slack that alerts are posted to.")
    pagerduty_key: SecretStr | None = Field(
        None, description="Integration key of a PagerDuty service, Events API v2, that alerts become incidents of."
    )
    pagerduty_url: str = Field(
        "https://events.pagerduty.com/v2/enqueue", description="Where PagerDuty takes events, e.g. in the EU."
    )
    alertmanager_url: SecretStr | None = Field(
        None, description="Alertmanager that alerts are sent to, again and again until they resolve."
    )
    alertmanager_repeat_seconds: float = Field(
        60.0, gt=0, description="How often they are sent, in seconds; an alert that misses four repeats ends there."
    )
    delivery_timeout_seconds: float = Field(
        10.0, gt=0, description="How long a receiver may take to connect, to take each part, and to answer."
    )
    delivery_max_attempts: int = Field(
        24, ge=1, description="Tries before a notification is given up; with the usual waits, after two hours."
    )
    delivery_backoff_seconds: float = Field(
        1.0, gt=0, description="Wait after the first failed try, doubled after each, at most ten minutes."
    )

    remind_seconds: float = Field(
        3600.0, gt=0, description="How often a page that nobody has acknowledged is told again, in seconds."
    )
    routes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description='Receivers of each owner\'s alerts, as JSON, e.g. `{"ana": ["slack"]}`; all, for the others.',
    )

    url: str = Field("http://127.0.0.1:8642", description="The service that `trmon ingest` sends to.")
    token: SecretStr | None = Field(None, description="The token that `trmon ingest` shows there.")

    grafana_url: str = Field("http://127.0.0.1:3000", description="The Grafana that `trmon grafana push` speaks to.")
    grafana_token: SecretStr | None = Field(None, description="The service account's token it shows there.")

    log_format: Literal["console", "json"] = Field("console", description="Form of the log lines on stderr.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe line logged.")

    @field_validator("allow_hosts", "metrics_signals", "webhook_allow_hosts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("port", mode="before")
    @classmethod
    def _is_ours(cls, value: object) -> object:
        """Kubernetes tells every pod of a Service called trmon by TRMON_PORT=tcp://..., which is where that one is."""
        return DEFAULT_PORT if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator("metrics_signals")
    @classmethod
    def _are_signals(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in SIGNALS]
        if unknown:
            raise ValueError(f"unknown signals {', '.join(unknown)}; GET /api/v1/signals lists those there are")
        return names

    @field_validator("webhook_url", "slack_url", "pagerduty_url", "alertmanager_url")
    @classmethod
    def _are_urls(cls, url: SecretStr | str | None) -> SecretStr | str | None:
        if url is not None:
            parse_webhook_url(url if isinstance(url, str) else url.get_secret_value())
        return url

    @field_validator("routes")
    @classmethod
    def _lead_to_receivers(cls, routes: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        named = {name for names in routes.values() for name in names}
        unknown = sorted(named - RECEIVERS.keys())
        if unknown:
            raise ValueError(f"unknown receivers {', '.join(unknown)}; there are {', '.join(RECEIVERS)}")
        missing = [
            f"{name} needs TRMON_{RECEIVERS[name].upper()}"
            for name in sorted(named)
            if info.data.get(RECEIVERS[name]) is None
        ]
        if missing:
            raise ValueError(f"leads to receivers that are not configured: {', '.join(missing)}")
        return routes

    @property
    def receivers(self) -> tuple[str, ...]:
        """The receivers that are configured."""
        return tuple(name for name, setting in RECEIVERS.items() if getattr(self, setting) is not None)

    @property
    def store_url(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'trmon.sqlite'}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def answered_hosts(self) -> frozenset[str] | None:
        """Host headers (without port) to answer; None answers any."""
        if not self.allow_hosts and not self.is_loopback:
            return None
        return frozenset((*LOOPBACK_HOSTS, self.host, *self.allow_hosts))
