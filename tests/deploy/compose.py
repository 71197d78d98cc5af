"""The compose file, read."""

from __future__ import annotations

from typing import Any

import yaml

from tests.deploy.image import ROOT

Json = dict[str, Any]

FILE = ROOT / "deploy" / "compose.yaml"
COMPOSE: Json = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, Json] = COMPOSE["services"]
