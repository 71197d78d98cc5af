"""`trmon version`: print versions."""

from __future__ import annotations

from importlib.metadata import version as version_of

import typer

from trmon_client.core import wire


def version_command() -> None:
    """Print the versions of the service, the client and the wire format."""
    versions = {name: version_of(name) for name in ("trmon", "trmon-client")}
    typer.echo(", ".join(f"{name} {number}" for name, number in versions.items()))
    typer.echo(f"wire {wire.WIRE_MAJOR}.{wire.WIRE_MINOR}, semantics {wire.SEMANTICS_VERSION}")
