"""The page on assistants: its configuration starts a command that exists, with options that it has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from trmon.cli.commands import COMMANDS, load_command
from trmon.config.secret_files import SUFFIX

PAGE = (Path(__file__).parents[2] / "docs" / "assistants.md").read_text("utf-8")


def test_the_configuration_starts_the_command_with_its_options() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    entry = json.loads(block)["mcpServers"]["trmon"]
    command, *arguments = entry["args"]
    assert (entry["command"], command in COMMANDS) == ("trmon", True)
    known = {option for parameter in load_command(command).params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known
    assert set(entry["env"]) <= {"TRMON_TOKEN", f"TRMON_TOKEN{SUFFIX}"}
