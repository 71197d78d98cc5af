"""Settings of the client: arguments of `init`, else TRMON_* and launchers' variables; no other module reads these."""

from __future__ import annotations

import hashlib
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from trmon_client.config.run_config import plain_config
from trmon_client.config.service_address import NAME, Arguments, token_of, url_of, variable_name
from trmon_client.core.policies.policy import Policy
from trmon_client.core.wire import MAX_NAME_LENGTH


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


VARIABLES = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "RAY_JOB_ID"),
    *("RANK", "WORLD_SIZE"),
)
"""The variables of launchers that the client reads."""


def job_id(launcher: Mapping[str, str]) -> str | None:
    """Return the launcher's id of a job, which its restarts keep; None without one, as in Ray, which numbers from 1."""
    # torchrun without --rdzv-id calls every job "none".
    if launcher.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return _joined("torchrun", launcher["TORCHELASTIC_RUN_ID"])
    return _joined("slurm", launcher["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in launcher else None


def attempt_id(launcher: Mapping[str, str]) -> str | None:
    """Return the launcher's id and restart count, or None if no launcher names this attempt."""
    if (job := job_id(launcher)) is not None:
        is_torchrun = job.startswith("torchrun")
        return _joined(job, restart_count(launcher) if is_torchrun else launcher.get("SLURM_RESTART_COUNT", "0"))
    return _joined("ray", launcher["RAY_JOB_ID"]) if "RAY_JOB_ID" in launcher else None


def launch_id(launcher: Mapping[str, str]) -> str | None:
    """Return an id that all ranks of one start share and no other start has, or None.

    The address distinguishes two torchrun jobs with the same id, the step two calls of `srun` in one Slurm job. Ray's
    job id outlives its workers and identifies no start.
    """
    attempt = attempt_id(launcher)
    if attempt is None or attempt.startswith("ray"):
        return None
    names = ("MASTER_ADDR", "MASTER_PORT") if attempt.startswith("torchrun") else ("SLURM_STEP_ID",)
    return _joined(attempt, *(launcher.get(name, "") for name in names))


def restart_count(launcher: Mapping[str, str]) -> str:
    """Return how often torchrun has restarted the workers, 0 without torchrun."""
    return launcher.get("TORCHELASTIC_RESTART_COUNT", "0")


def rank_hint(launcher: Mapping[str, str]) -> tuple[int, int]:
    """Return the global rank and world size that a launcher announces, else 0 and 1."""
    rank, world_size = launcher.get("RANK", "0"), launcher.get("WORLD_SIZE", "1")
    if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
        return int(rank), int(world_size)
    return 0, 1


def initialized_distributed() -> Any | None:
    """Return torch.distributed if the trainer has imported and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _joined(*parts: str) -> str:
    name = "-".join(part for part in parts if part)
    if len(name) <= 96 and name.isprintable():
        return name
    # Bytes of the environment that are not UTF-8 are lone surrogates here, which messages do not accept.
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{''.join(filter(str.isprintable, name))[:64]}-{digest}"


TEXT = f"1 to {MAX_NAME_LENGTH} printable characters"
MAX_TAGS = 64
TAGS = f"at most {MAX_TAGS} names of {TEXT}, comma-separated in the variable"
DEFAULT_POLICY = "trm_auto"
DEFAULT_SPOOL = "trmon-spool"
DEFAULT_RECORD_STEPS = 8


OnIncident = Callable[[Mapping[str, Any]], object]
"""The trainer's function for an incident, with what `advice["incident"]` says of it."""


class Mode(str, Enum):
    """Whether the client enforces its decisions, only records them, or is off."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings of one monitor; `launcher` holds the launchers' variables as they were at the start."""

    project: str
    run: str
    mode: Mode = Mode.OBSERVE
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    policy: Policy
    is_policy_asked_for: bool = False
    owner: str | None = None
    tags: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    attempt: str | None = None
    rank: int | None = None
    world_size: int | None = None
    spool_dir: Path = Path(DEFAULT_SPOOL)
    record_dir: Path | None = None
    record_steps: int = DEFAULT_RECORD_STEPS
    record_texts: bool = False
    handles_signals: bool = True
    triton: bool | None = None
    checkpoint_on_warning: bool = False
    on_incident: OnIncident | None = field(default=None, repr=False)
    tracker: str | None = None
    reports_checkpoints: bool = False
    """Whether an integration reports each checkpoint, so that without a report there is none."""
    launcher: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def page_url(self) -> str | None:
        """The URL of the run's page; None without a service."""
        return None if self.url is None else f"{self.url}/runs/{self.project}/{self.run}"

    @property
    def start_facts(self) -> dict[str, Any]:
        """What the start message states: the recorder's settings if it is on, and whether checkpoints are reported."""
        known = None if self.record_dir is None else str(self.record_dir.absolute())
        recorder = {} if known is None else {"record_dir": known, "record_steps": self.record_steps}
        return {**recorder, **({"reports_checkpoints": True} if self.reports_checkpoints else {})}

    @property
    def run_spool_dir(self) -> Path:
        """The directory that holds the spools of this run's processes."""
        return self.spool_dir / self.project / self.run


def resolve_settings(
    given: Mapping[str, Any], *, environment: Mapping[str, str], limits: Limits | None = None
) -> ClientSettings:
    """Return the settings of one monitor.

    Args: given: arguments of `init`, None where absent. environment: usually os.environ.
    Errors: ValueError naming the argument and its variable.
    """
    arguments = Arguments(given, environment)
    policy = arguments.get("policy")
    rank, world_size = _ranks(arguments)
    launcher = {name: environment[name] for name in VARIABLES if environment.get(name)}
    return ClientSettings(
        project=_name(arguments, "project"),
        run=_name(arguments, "run", otherwise=lambda: new_run_name(launcher, world_size=world_size)),
        mode=_mode(arguments),
        url=url_of(arguments),
        token=token_of(arguments),
        policy=Policy.parse(policy if policy is not None else DEFAULT_POLICY),
        is_policy_asked_for=policy is not None,
        owner=arguments.parsed("owner", _text, expected=TEXT),
        tags=arguments.parsed("tags", _tags, expected=TAGS) or (),
        config={} if given.get("config") is None else plain_config(given["config"]),
        attempt=arguments.parsed("attempt", _text, expected=TEXT),
        rank=rank,
        world_size=world_size,
        spool_dir=arguments.parsed("spool_dir", _directory, expected="a directory's path") or _directory(""),
        record_dir=arguments.parsed("record_dir", _directory, expected="a directory's path"),
        record_steps=arguments.parsed("record_steps", _positive, expected="1 or more") or DEFAULT_RECORD_STEPS,
        record_texts=arguments.parsed("record_texts", _switch, expected="0 or 1") is True,
        handles_signals=arguments.parsed("signals", _switch, expected="0 or 1") is not False,
        triton=_triton(arguments),
        checkpoint_on_warning=asks_to_save(arguments),
        on_incident=incident_function(arguments),
        tracker=arguments.parsed("tracker", _tracker, expected="wandb, mlflow or tensorboard:FOLDER"),
        launcher=launcher,
        limits=limits or Limits(),
    )


def new_run_name(launcher: Mapping[str, str], *, world_size: int | None) -> str | None:
    """Return a name for a run that was given none: the launcher's id of the job, else the script's name and the time.

    None where several processes report the run, which would not choose the same name.
    """
    if (job := job_id(launcher)) is not None:
        return re.sub(r"[^\w.-]", "-", job, flags=re.ASCII)
    distributed = initialized_distributed()
    if (world_size or (distributed.get_world_size() if distributed else rank_hint(launcher)[1])) > 1:
        return None
    script = re.sub(r"[^\w.]+", "-", Path(sys.argv[0] or "python").stem, flags=re.ASCII).strip("-._")[:64] or "run"
    return f"{script}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _name(arguments: Arguments, name: str, *, otherwise: Callable[[], str | None] = lambda: None) -> str:
    if arguments.get(name) is None:
        if (made := otherwise()) is not None:
            return made
        raise ValueError(f"{name} is needed: pass init({name}=...) or set {variable_name(name)}")
    expected = "1 to 128 letters, digits, '.', '_' or '-', not leading with a sign"
    found = arguments.parsed(name, NAME.fullmatch, expected=expected)
    if found is None:
        raise ValueError(f"{name} ({variable_name(name)}) must be {expected}, and is {arguments.get(name)!r:.80}")
    return found.group()


def _mode(arguments: Arguments) -> Mode:
    # The variable overrides its argument: it turns a job off, or back to observe mode, without a code change.
    named = arguments.environment.get("TRMON_MODE") or arguments.given.get("mode") or Mode.OBSERVE
    try:
        return Mode(named)
    except ValueError as error:
        raise ValueError(f"mode (TRMON_MODE) must be observe, enforce or off, and is {named!r:.80}") from error


def _triton(arguments: Arguments) -> bool | None:
    # As TRMON_MODE does, 0 overrides the argument: a job whose compiler fails is started again without a code change.
    without = Arguments({}, arguments.environment).parsed("triton", _switch, expected="0 or 1")
    return False if without is False else arguments.parsed("triton", _switch, expected="0 or 1")


def _ranks(arguments: Arguments) -> tuple[int | None, int | None]:
    rank = arguments.parsed("rank", int, expected="a whole number")
    world_size = arguments.parsed("world_size", int, expected="a whole number")
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size (TRMON_RANK, TRMON_WORLD_SIZE) go together: pass both or neither")
    if rank is not None and world_size is not None and not 0 <= rank < world_size:
        raise ValueError(f"rank must be 0 to world_size - 1, and is {rank} with world_size {world_size}")
    return rank, world_size


def asks_to_save(arguments: Arguments) -> bool:
    """Whether the trainer's author wants a checkpoint at a warning. Errors: ValueError naming the variable."""
    return arguments.parsed("checkpoint_on_warning", _switch, expected="0 or 1") is True


def incident_function(arguments: Arguments) -> OnIncident | None:
    """Return the trainer's function for an incident, by its name in the variable. Errors: ValueError naming both."""
    return arguments.parsed("on_incident", _function, expected="a function, MODULE:FUNCTION in the variable")


def _function(value: OnIncident | str) -> OnIncident:
    found: OnIncident = resolve_name(value) if isinstance(value, str) else value
    if not callable(found):
        raise TypeError
    return found


def _tracker(value: str) -> str:
    if not re.fullmatch("wandb|mlflow|tensorboard:.+", value, re.DOTALL):
        raise ValueError
    return value


def _switch(value: str | bool) -> bool:
    return {"0": False, "false": False, "1": True, "true": True}[str(value).lower()]


def _positive(value: str | int) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _directory(value: str | Path) -> Path:
    if "\0" in str(value):
        raise ValueError
    try:
        # A trainer that changes its working directory must not split its spool over two directories.
        return Path(value or DEFAULT_SPOOL).absolute()
    except OSError:  # the working directory is gone
        return Path(value or DEFAULT_SPOOL)


def _text(value: str) -> str:
    if not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
        raise ValueError
    return value


def _tags(value: str | Sequence[str]) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    tags = tuple(_text(name) for name in (str(part).strip() for part in names) if name)
    if len(tags) > MAX_TAGS:
        raise ValueError
    return tags
