"""Generates the Grafana dashboards and alert rules: `make dashboards`."""

from __future__ import annotations

from dashboards.source.files import FOLDER, generated

for path, text in generated().items():
    (FOLDER / path).write_text(text)
