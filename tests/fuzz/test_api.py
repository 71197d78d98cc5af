"""No request breaks the API: schemathesis sends what the OpenAPI document allows, what it forbids, and sequences."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.fuzzing import count_cases, fuzz_seconds
from tests.fixtures.messages import report
from tests.fixtures.running_service import Serve, make_token
from trmon.domain.access import Scope
from trmon_client.core import wire

SCHEMATHESIS = Path(__file__).parents[2] / ".venv-fuzz" / "bin" / "st"
pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="no schemathesis here; `make fuzz` installs it"),
]

SHORT_SECONDS = 24.0
LONG_SECONDS = 300.0
"""From this time on every operation must be reached."""
PHASES = ("coverage,fuzzing", "stateful")
"""A separate run for each, since the first phases of a run take up to a minute and leave no time for the others.

The phase of examples is left out: the document has few, and it needs longer than the others to begin.
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "use_after_free",
)
EXCLUDED = r"events$|/tokens/\{|^/readyz"
"""Event streams, whose answers never end, the revocation of the fuzzer's own token, and what may answer 503."""


def test_no_request_breaks_the_api(serve: Serve, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    service = serve(rate_per_second=1e6, rate_burst=10**6)
    with service.client() as client:
        for step in range(3):
            body = wire.encode(report(step=step))
            sent = client.post("/api/v1/runs/math/grpo/reports", content=body, headers={"Content-Type": wire.MSGPACK})
            assert sent.status_code == 200
        schema = tmp_path / "openapi.json"
        schema.write_bytes(client.get("/api/v1/openapi.json").content)
        secret = make_token(client, "fuzzer", Scope.ADMIN)
    seconds = (fuzz_seconds(pytestconfig) or SHORT_SECONDS) / len(PHASES)
    findings = tmp_path / "findings.json"
    for phases in PHASES:
        command = [SCHEMATHESIS, "run", schema, "--url", service.url, "--request-timeout", "60", "--phases", phases]
        command += ["--header", f"Authorization: Bearer {secret}", "--checks", ",".join(CHECKS)]
        command += ["--exclude-path-regex", EXCLUDED, "--max-time", f"{seconds:.0f}", "--warnings", "off"]
        command += ["--report", "json", "--report-json-path", findings]
        if not fuzz_seconds(pytestconfig):
            command += ["--generation-deterministic", "--seed", "1"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found = json.loads(findings.read_text())
        operations = found["operations"]
        assert operations["tested"]
        assert operations["tested"] == operations["selected"] or seconds < LONG_SECONDS, ran.stdout
        count_cases(found["test_cases"]["generated"])
