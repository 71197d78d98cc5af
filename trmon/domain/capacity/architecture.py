"""The ways to deploy trmon that the model compares; those that are not built say what of them is an assumption."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.capacity.station import Activity


class DeploymentKind(Enum):
    """A deployment whose demands are measured."""

    EMBEDDED = "embedded"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceArchitecture:
    """A deployment, how many databases it may have, and the work that another system takes from the database.

    `assumption` is empty where everything is built and measured.
    """

    name: str
    kind: DeploymentKind = DeploymentKind.FLEET
    many_databases: bool = False
    moved: frozenset[Activity] = frozenset()
    moved_to: str = ""
    assumption: str = ""

    @property
    def is_built(self) -> bool:
        """Whether this version of trmon can be deployed so."""
        return not self.moved


ARCHITECTURES = (
    ServiceArchitecture(name="embedded", kind=DeploymentKind.EMBEDDED),
    ServiceArchitecture(name="one PostgreSQL"),
    ServiceArchitecture(
        name="several PostgreSQL",
        many_databases=True,
        assumption="projects can be spread evenly; each database has its own API processes and workers",
    ),
    ServiceArchitecture(
        name="queue in front",
        moved=frozenset({Activity.REPORT, Activity.SEQUENCE}),
        moved_to="message queue",
        assumption="not built: reports cost the database nothing; the queue costs an API process and a worker what "
        "the database costs them",
    ),
    ServiceArchitecture(
        name="column store",
        moved=frozenset({Activity.BATCH}),
        moved_to="column store",
        assumption="not built: closed batches cost the database nothing, which is the most that it can save",
    ),
)
"""From the simplest to the most complex; the planner recommends the first built one that carries the workload."""
