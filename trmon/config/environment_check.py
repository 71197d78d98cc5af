"""The variables of the environment that look like trmon's settings and are none: an error in typing is not silent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from trmon.config.settings import Settings

PREFIX = "TRMON_"
OF_CLIENTS = (
    *("project", "run", "mode", "url", "token", "policy", "owner", "tags"),
    *("attempt", "rank", "world_size", "spool_dir"),
)
"""The settings that trainers' processes read."""
OF_KUBERNETES = re.compile(r"(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
"""What every pod is told of a Service called trmon, beside its TRMON_PORT."""


def unknown_variables(variables: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the names of variables that nothing of trmon reads, in order, each with the one that it is like, if any."""
    known = sorted({name.upper() for name in (*Settings.model_fields, *OF_CLIENTS)})
    for variable in sorted(variable for variable in variables if variable.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name not in known and not OF_KUBERNETES.fullmatch(name):
            near = get_close_matches(name, known, n=1, cutoff=0.75)
            yield variable, f"{PREFIX}{near[0]}" if near else None
