"""The TRMON_* settings of the service; nothing else reads the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from email.errors import HeaderParseError
from email.headerregistry import Address
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from trmon.config.secret_files import SUFFIX, EnvironmentWithSecretFiles, is_secret
from trmon.domain.errors import did_you_mean
from trmon_client.core.signals.batch_signals import SIGNALS

if TYPE_CHECKING:
    import httpx


NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
DEFAULT_SERVICE_URL = "http://127.0.0.1:8642"
DEFAULT_PORT = 8642
RECEIVERS = {
    "webhook": "webhook_url",
    "slack": "slack_url",
    "pagerduty": "pagerduty_key",
    "alertmanager": "alertmanager_url",
    "email": "smtp_host",
}
"""The receivers, each with the setting that enables it; those of `apprise_urls` have separate names."""
SMTP_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
Names = Annotated[tuple[str, ...], NoDecode]
"""A list of names, comma-separated in the environment."""


def check_email_address(text: str) -> str:
    """Return a plain address such as ana@example.org. Errors: ValueError."""
    try:
        address = Address(addr_spec=text)
        is_valid = text.isascii() and text.isprintable() and bool(address.username and address.domain)
    except (HeaderParseError, ValueError, IndexError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{text!r} is not an e-mail address; write it without a name, e.g. ana@example.org")
    return text


def parse_webhook_url(url: str) -> httpx.URL:
    """Return a parsed URL. Errors: ValueError, which omits the URL because it may be a secret."""
    import httpx  # every command reads the settings, and few have a webhook

    try:
        address = httpx.URL(url)
        address.host.encode("idna")  # the encoding of the DNS look-up
    except (httpx.InvalidURL, UnicodeError):
        address = httpx.URL("")
    if address.scheme not in ("https", "http") or not address.host or not 0 < (address.port or 1) < 1 << 16:
        raise ValueError("must be a URL, https://host[:port]/path (or http:// with an allowed host)") from None
    return address


class Settings(BaseSettings):
    """Settings of the service, validated at start and immutable."""

    model_config = SettingsConfigDict(env_prefix="TRMON_", env_ignore_empty=True, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; an address other than loopback requires a token.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data_dir: Path = Field(Path("trmon-data"), description="Directory of the SQLite database.")
    database_url: SecretStr | None = Field(
        None, description="SQLAlchemy URL of the database to use instead of SQLite in the data directory."
    )
    worker: Literal["process", "thread"] = Field(
        "process",
        description="Where runs are evaluated with SQLite: in a separate process, which uses a second core, "
        "or in a thread of the service, which uses less memory.",
    )
    redis_url: SecretStr | None = Field(
        None, description="Redis that pushes change notices between processes; without it, they poll every second."
    )
    runbook_url: str | None = Field(
        None,
        description="Where your own runbooks of rules are; a rule's name is appended. Default: that on the run's page.",
    )
    public_url: str | None = Field(
        None,
        description="The service's URL as its users reach it, for links in alerts; beyond loopback it needs a token.",
    )

    allow_hosts: Names = Field(
        (),
        description="Accepted Host headers besides loopback names, which require a token; empty accepts any if the "
        "address is not loopback.",
    )
    max_body_bytes: int = Field(
        64 << 20, ge=1024, description="Maximum size of a request body, before and after decompression, in bytes."
    )
    max_held_bytes: int = Field(
        256 << 20,
        ge=1024,
        description="Maximum size of all request bodies in memory, in bytes; requests above it get 429. "
        "A caller (a token, or an address without one) may hold as many bytes as stay free: one caller alone half.",
    )
    rate_per_second: float = Field(
        500.0, gt=0, description="Rate limit per token, or per address without a token, in requests per second."
    )
    rate_burst: int = Field(2000, ge=1, description="Size of the burst that may exceed the rate limit, in requests.")
    new_runs_per_hour: int = Field(
        5000,
        ge=0,
        description="How many runs a token, or all callers without one, may begin in an hour, for each API process; "
        "0 is no limit.",
    )

    grace_seconds: float = Field(
        60.0, gt=0, description="How long an incomplete batch waits for missing ranks, in seconds."
    )
    stall_floor_seconds: float = Field(
        120.0, gt=0, description="Shortest silence after which a run counts as stalled, in seconds."
    )
    stall_factor: float = Field(
        3.0,
        gt=1,
        description="A run counts as stalled after this many times its usual step time, but not before the floor.",
    )
    lease_seconds: float = Field(
        10.0, gt=1, description="How long the runs of a dead worker wait before another worker takes over, in seconds."
    )
    idle_after_seconds: float = Field(
        3600.0, gt=0, description="Silence after which /metrics no longer shows a run, in seconds."
    )

    retention_days: float = Field(
        30.0,
        gt=0,
        description="How long reports, notifications and ended silences are kept, in days; batches are kept forever.",
    )
    retention_run_bytes: int = Field(
        2 << 30, ge=0, description="Maximum report storage per run, in bytes; the oldest are deleted first."
    )
    retention_bytes: int = Field(
        50 << 30, ge=0, description="Maximum report storage in total, in bytes; the oldest are deleted first."
    )
    retention_every_seconds: float = Field(
        3600.0, gt=0, description="Interval between deletions by retention, in seconds."
    )

    lake_url: str | None = Field(
        None,
        description="Where attempts of ended runs move to, as Delta tables: a folder, s3://bucket/prefix, "
        "gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix; credentials come from AWS_*, "
        "GOOGLE_* or AZURE_*. Without it, nothing moves.",
    )
    lake_after_seconds: float = Field(
        7 * 86_400.0,
        ge=0,
        description="How long an attempt must have been idle before it moves to the lake, in seconds.",
    )
    lake_every_seconds: float = Field(
        600.0, gt=0, description="Interval between passes that move attempts to the lake, in seconds."
    )

    audit_days: float = Field(
        365.0, gt=0, description="How long entries of the audit log are kept, in days; 36500 keeps them for a century."
    )

    metrics_max_runs: int = Field(
        500, ge=0, description="Maximum number of runs on /metrics; the rest are only counted."
    )
    metrics_max_scalars: int = Field(32, ge=0, description="Maximum number of trainer scalars per run on /metrics.")
    metrics_signals: Names = Field(
        (), description="Signals on /metrics besides the core ones, by full name, e.g. mismatch_kl_k2."
    )

    rules_file: Path | None = Field(
        None, description="YAML file with rules that extend or override the built-in ones; reloaded when it changes."
    )

    risk_model: Path | None = Field(
        None,
        description="Model of the risk of a collapse in place of the shipped one, as `trmon risk calibrate` writes.",
    )

    webhook_url: SecretStr | None = Field(
        None, description="URL that alerts are posted to; https, or http to an allowed host."
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Secret that signs webhooks: plain text, or whsec_ and base64."
    )
    webhook_allow_hosts: Names = Field(
        (), description="Receiver hosts that may be private, link-local or without TLS, e.g. 127.0.0.1."
    )
    slack_url: SecretStr | None = Field(None, description="Slack incoming webhook that alerts are posted to.")
    pagerduty_key: SecretStr | None = Field(
        None, description="Integration key (Events API v2) of the PagerDuty service that receives alerts as incidents."
    )
    pagerduty_url: str = Field(
        "https://events.pagerduty.com/v2/enqueue", description="URL of PagerDuty's events API, e.g. of the EU region."
    )
    alertmanager_url: SecretStr | None = Field(
        None, description="URL of the Alertmanager that receives alerts, repeated until they resolve."
    )
    alertmanager_repeat_seconds: float = Field(
        60.0,
        gt=0,
        description="Interval between repeats, in seconds; Alertmanager resolves an alert that misses four repeats.",
    )
    smtp_host: str | None = Field(None, description="Mail server that sends alerts by e-mail.")
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server: 587 for starttls, 465 for tls.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="How the connection to the mail server is encrypted; `none` needs the host in "
        "`TRMON_WEBHOOK_ALLOW_HOSTS` and sends no password.",
    )
    smtp_ca_file: Path | None = Field(
        None, description="PEM file of the CA of the mail server's certificate, if the system does not trust it."
    )
    smtp_user: SecretStr | None = Field(None, description="User name at the mail server.")
    smtp_password: SecretStr | None = Field(None, validate_default=True, description="Password at the mail server.")
    email_from: str | None = Field(
        None, validate_default=True, description="Sender of e-mailed alerts, e.g. trmon@example.org."
    )
    email_to: Names = Field(
        (), validate_default=True, description="Recipients of e-mailed alerts, comma-separated addresses."
    )
    apprise_unchecked_addresses: bool = Field(
        False,
        description="Must be `true` to use `TRMON_APPRISE_URLS`: Apprise connects without the address check that trmon "
        "applies to other receivers.",
    )
    apprise_urls: dict[str, SecretStr] = Field(
        default_factory=dict,
        description='Apprise URLs by receiver name, as JSON, e.g. `{"teams": "msteams://..."}`; needs the extra '
        "`apprise`.",
    )
    delivery_timeout_seconds: float = Field(
        10.0, gt=0, description="Timeout of a receiver for connecting, for each write and for the response, in seconds."
    )
    delivery_max_attempts: int = Field(
        24,
        ge=1,
        description="Maximum number of attempts per notification; with the default backoff they span two hours.",
    )
    delivery_backoff_seconds: float = Field(
        1.0, gt=0, description="Wait after the first failed attempt, in seconds; doubled after each, up to ten minutes."
    )

    remind_seconds: float = Field(
        3600.0, gt=0, description="Unacknowledged pages are sent again after this interval, in seconds."
    )
    stall_group_seconds: float = Field(
        30.0,
        ge=0,
        le=50,
        description="How long a stalled run's notification waits for other runs that stall, in seconds; at most half "
        "of `TRMON_STALL_FLOOR_SECONDS`. Three or more runs become one message.",
    )
    routes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description='Receivers of each owner\'s alerts, as JSON, e.g. `{"ana": ["slack"]}`; the others\' go to all.',
    )

    url: str = Field(DEFAULT_SERVICE_URL, description="URL of the service that commands ask or send to.")
    token: SecretStr | None = Field(None, description="Token that these commands use.")

    grafana_url: str = Field(
        "http://127.0.0.1:3000", description="URL of the Grafana that `trmon grafana push` updates."
    )
    grafana_token: SecretStr | None = Field(
        None, description="Token of the Grafana service account that `trmon grafana push` uses."
    )

    log_format: Literal["console", "json"] = Field("console", description="Format of the log lines on stderr.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum severity of log lines."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return what is read: arguments, then the environment."""
        return init_settings, EnvironmentWithSecretFiles(settings_cls)

    @field_validator("allow_hosts", "metrics_signals", "webhook_allow_hosts", "email_to", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allow_hosts", "webhook_allow_hosts")
    @classmethod
    def _lower_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in hosts)

    @field_validator("port", mode="before")
    @classmethod
    def _ignore_kubernetes_port(cls, value: object) -> object:
        """Kubernetes sets TRMON_PORT=tcp://... in every pod for a Service named trmon; ignore that value."""
        return DEFAULT_PORT if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator("metrics_signals")
    @classmethod
    def _check_signals(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from trmon.domain.signals.derived_signals import DERIVED

        known = SIGNALS | DERIVED
        unknown = [name for name in names if name not in known]
        if unknown:
            suggestion = did_you_mean(unknown[0], known)
            raise ValueError(f"unknown signals {', '.join(unknown)}{suggestion}; GET /api/v1/signals lists them all")
        return names

    @field_validator("webhook_url", "slack_url", "pagerduty_url", "alertmanager_url")
    @classmethod
    def _check_urls(cls, url: SecretStr | str | None) -> SecretStr | str | None:
        if url is not None:
            parse_webhook_url(url if isinstance(url, str) else url.get_secret_value())
        return url

    @field_validator("smtp_host")
    @classmethod
    def _check_smtp_host(cls, host: str | None) -> str | None:
        if host is not None and not SMTP_HOST.fullmatch(host):
            raise ValueError("must be a host name or an address; the port is TRMON_SMTP_PORT")
        return None if host is None else host.lower()

    @field_validator("smtp_security")
    @classmethod
    def _check_smtp_security(cls, security: str, info: ValidationInfo) -> str:
        host = info.data.get("smtp_host")
        if security == "none" and host is not None and host not in info.data.get("webhook_allow_hosts", ()):
            raise ValueError(f"sends alerts unencrypted; to allow it, add {host} to TRMON_WEBHOOK_ALLOW_HOSTS")
        return security

    @field_validator("smtp_password")
    @classmethod
    def _check_smtp_password(cls, password: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if (password is None) is not (info.data.get("smtp_user") is None):
            raise ValueError("is needed with TRMON_SMTP_USER" if password is None else "needs TRMON_SMTP_USER")
        if password is not None and info.data.get("smtp_security") == "none":
            raise ValueError("is not sent unencrypted: set TRMON_SMTP_SECURITY to starttls or tls")
        return password

    @field_validator("email_from")
    @classmethod
    def _check_email_from(cls, address: str | None, info: ValidationInfo) -> str | None:
        if address is None and info.data.get("smtp_host") is not None:
            raise ValueError("is needed with TRMON_SMTP_HOST, e.g. trmon@example.org")
        return None if address is None else check_email_address(address)

    @field_validator("email_to")
    @classmethod
    def _check_email_to(cls, addresses: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "smtp_host" in info.data and bool(addresses) is not (info.data["smtp_host"] is not None):
            raise ValueError("needs TRMON_SMTP_HOST" if addresses else "is needed with TRMON_SMTP_HOST")
        return tuple(check_email_address(address) for address in addresses)

    @field_validator("apprise_urls")
    @classmethod
    def _check_apprise_urls(cls, urls: dict[str, SecretStr], info: ValidationInfo) -> dict[str, SecretStr]:
        if urls and not info.data.get("apprise_unchecked_addresses"):
            raise ValueError(
                "Apprise connects without trmon's address check; to accept that, set "
                "TRMON_APPRISE_UNCHECKED_ADDRESSES=true"
            )
        for name in urls:
            if name in RECEIVERS:
                raise ValueError(f"{name} is the name of a built-in receiver; choose another")
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a receiver name: it has 1 to 32 characters a-z, 0-9, _ or -, "
                    "and starts with a letter"
                )
        return urls

    @field_validator("routes")
    @classmethod
    def _check_routes(cls, routes: dict[str, tuple[str, ...]], info: ValidationInfo) -> dict[str, tuple[str, ...]]:
        apprise = info.data.get("apprise_urls", {})
        named = {name for names in routes.values() for name in names} - apprise.keys()
        unknown = sorted(named - RECEIVERS.keys())
        if unknown:
            known = ", ".join((*RECEIVERS, *apprise))
            raise ValueError(f"unknown receivers {', '.join(unknown)}; known ones are {known}")
        missing = [
            f"{name} needs TRMON_{RECEIVERS[name].upper()}"
            for name in sorted(named)
            if info.data.get(RECEIVERS[name]) is None
        ]
        if missing:
            raise ValueError(f"names receivers that are not configured: {', '.join(missing)}")
        return routes

    @property
    def receivers(self) -> tuple[str, ...]:
        """The configured receivers."""
        enabled = (name for name, setting in RECEIVERS.items() if getattr(self, setting) is not None)
        return (*enabled, *self.apprise_urls)

    @property
    def store_url(self) -> str:
        """The database's URL."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'trmon.sqlite'}"

    @property
    def is_exposed(self) -> bool:
        """Whether the service may be reached from beyond this machine, directly or through a proxy."""
        hosts = [self.host, *self.allow_hosts]
        if self.public_url is not None:
            hosts.append(urlsplit(self.public_url).hostname or self.public_url)
        return not all(map(_is_loopback_host, hosts))

    @property
    def answered_hosts(self) -> frozenset[str] | None:
        """Accepted Host headers in lower case, without port; None accepts any."""
        if not self.allow_hosts and not _is_loopback_host(self.host):
            return None
        return frozenset((*LOOPBACK_HOSTS, self.host.lower(), *self.allow_hosts))


def _is_loopback_host(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


PREFIX = "TRMON_"
CLIENT_SETTINGS = (
    *("project", "run", "mode", "url", "token", "policy", "owner", "tags"),
    *("attempt", "rank", "world_size", "spool_dir", "signals", "token_file"),
    *("record_dir", "record_steps", "record_texts", "triton", "checkpoint_on_warning", "on_incident", "tracker"),
)
"""The settings that the client reads."""
SECRET_FILES = tuple(f"{name}{SUFFIX}" for name, field in Settings.model_fields.items() if is_secret(field.annotation))
"""The variables that name the file of a secret."""
KUBERNETES_VARIABLE = re.compile(r"(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
"""Variables that Kubernetes sets in every pod for a Service named trmon, besides TRMON_PORT."""


def unknown_variables(variables: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the unknown TRMON_* variables in order, each with the most similar known one, if any."""
    known = sorted({name.upper() for name in (*Settings.model_fields, *SECRET_FILES, *CLIENT_SETTINGS)})
    for variable in sorted(variable for variable in variables if variable.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name not in known and not KUBERNETES_VARIABLE.fullmatch(name):
            similar = get_close_matches(name, known, n=1, cutoff=0.75)
            yield variable, f"{PREFIX}{similar[0]}" if similar else None
