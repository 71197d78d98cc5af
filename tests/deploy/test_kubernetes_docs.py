"""The manifests that docs/deploy.md gives for Kubernetes fit those of deploy/kubernetes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.image import ROOT
from tests.deploy.manifests import OVERLAYS, Json, all_of, containers, rendered
from tests.deploy.network_policies import selects

SECTION = (ROOT / "docs" / "deploy.md").read_text().partition("## In Kubernetes")[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)


def documented(kind: str) -> Json:
    [found] = [found for found in map(yaml.safe_load, BLOCKS) if found["kind"] == kind]
    return dict(found)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_kustomization_of_your_own_sets_the_image_and_settings_of_every_pod(overlay: str, tmp_path: Path) -> None:
    own = documented("Kustomization")
    [resource] = own["resources"]
    assert resource == "../trmon/deploy/kubernetes/overlays/fleet"
    (tmp_path / "trmon").symlink_to(ROOT)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kustomization.yaml").write_text(
        yaml.safe_dump(own | {"resources": [resource.replace("fleet", overlay)]})
    )
    deployments = [found for found in rendered(tmp_path / "own") if found["kind"] == "Deployment"]
    assert len(deployments) == len(all_of(overlay, "Deployment"))
    for deployment in deployments:
        pod = deployment["spec"]["template"]
        assert {container["image"] for container in containers(pod)} == {"registry.example/trmon:0.2.0"}
        variables = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}
        assert variables["TRMON_PUBLIC_URL"] == "https://trmon.example"
        assert ("TRMON_DATABASE_URL_FILE" in variables) is (overlay == "fleet")


def test_the_pod_monitor_finds_every_port_as_the_job_trmon() -> None:
    monitor = documented("PodMonitor")["spec"]
    ports = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    pods = [found["spec"]["template"] for found in all_of("fleet", "Deployment")]
    assert ports == {port["name"] for pod in pods for one in containers(pod) for port in one.get("ports", ())}
    for pod in pods:
        labels = pod["metadata"]["labels"]
        assert selects(monitor["selector"]["matchLabels"], labels)
        assert labels[monitor["jobLabel"]] == "trmon"


def test_every_named_file_and_object_exists() -> None:
    for path in re.findall(r"deploy/kubernetes/\S+", SECTION):
        assert (ROOT / path).exists()
    names = {found["metadata"]["name"] for overlay in OVERLAYS for found in all_of(overlay, "Deployment")}
    assert set(re.findall(r"deployment/([\w-]+)", SECTION)) == names
