"""The manifests that docs/deploy.md gives for Kubernetes fit those of deploy/kubernetes."""

from __future__ import annotations

import re

import promql_parser as promql
import pytest
import yaml

from tests.deploy.image import ROOT
from tests.deploy.manifests import COMPONENTS, OVERLAYS, Json, all_of, containers, customized, extended

SECTION = (ROOT / "docs" / "deploy.md").read_text().partition("## In Kubernetes")[2]
COMPONENTS_AT = "../trmon/deploy/kubernetes/components"
BLOCKS = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)


def documented(kind: str) -> Json:
    [found] = [found for found in map(yaml.safe_load, BLOCKS) if found.get("kind") == kind]
    return dict(found)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_kustomization_of_your_own_sets_the_image_and_settings_of_every_pod(overlay: str) -> None:
    own = documented("Kustomization")
    [resource] = own["resources"]
    assert resource == "../trmon/deploy/kubernetes/overlays/fleet"
    objects = customized(own | {"resources": [resource.replace("fleet", overlay)]})
    deployments = [found for found in objects if found["kind"] == "Deployment"]
    assert len(deployments) == len(all_of(overlay, "Deployment"))
    for deployment in deployments:
        pod = deployment["spec"]["template"]
        assert {container["image"] for container in containers(pod)} == {"registry.example/trmon:0.2.0"}
        variables = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}
        assert variables["TRMON_PUBLIC_URL"] == "https://trmon.example"
        assert ("TRMON_DATABASE_URL_FILE" in variables) is (overlay == "fleet")


def test_the_components_are_all_in_the_table_and_named_as_documented() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", SECTION, re.MULTILINE)
    assert set(rows) == {name for names in COMPONENTS.values() for name in names}
    [named] = [block["components"] for block in map(yaml.safe_load, BLOCKS) if "components" in block]
    [patched] = [block["patches"] for block in map(yaml.safe_load, BLOCKS) if block.keys() == {"patches"}]
    own = documented("Kustomization") | {"components": [*named, f"{COMPONENTS_AT}/ingress"], "patches": patched}
    [ingress] = [found for found in customized(own) if found["kind"] == "Ingress"]
    hosts = {*ingress["spec"]["tls"][0]["hosts"], ingress["spec"]["rules"][0]["host"]}
    assert hosts == {"trmon.company.example"}


def test_the_adapter_gives_the_autoscaler_its_metric() -> None:
    [[rule]] = [block["externalRules"] for block in map(yaml.safe_load, BLOCKS) if "externalRules" in block]
    [scaler] = [found for found in extended("fleet") if found["kind"] == "HorizontalPodAutoscaler"]
    [metric] = scaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    series, _, _ = rule["seriesQuery"].partition("{")
    assert f"`{series}`" in (ROOT / "docs" / "reference" / "metrics.md").read_text()
    promql.parse(rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", ""))


def test_every_named_file_and_object_exists() -> None:
    for path in re.findall(r"deploy/kubernetes/\S+", SECTION):
        assert (ROOT / path).exists()
    names = {found["metadata"]["name"] for overlay in OVERLAYS for found in all_of(overlay, "Deployment")}
    assert set(re.findall(r"deployment/([\w-]+)", SECTION)) == names
