"""The components of deploy/kubernetes, and the manifests that docs/deploy.md gives, match what is shipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import jsonschema
import kubernetes_validate
import promql_parser as promql
import pytest
import yaml

from tests.deploy.image import ROOT, SERVICES
from tests.deploy.manifests import (
    COMPONENTS,
    KUBERNETES,
    OBJECTS,
    OVERLAYS,
    Json,
    all_of,
    allows,
    containers,
    customized,
    extended,
    pod_of,
    selects,
)
from trmon.config.settings import Settings

CUSTOM = yaml.safe_load((ROOT / "tests" / "deploy" / "monitoring.coreos.com.yaml").read_text())
"""The schemas of Prometheus' operator, by kind."""
VERSIONS = ("1.25", kubernetes_validate.latest_version().rpartition(".")[0])
"""Of Kubernetes: the oldest and the newest with a schema."""
CLUSTER_WIDE = ("Namespace", "PriorityClass")
RULES = ROOT / "deploy" / "prometheus" / "rules"

all_objects = cache(extended)


def of_kind(overlay: str, kind: str) -> dict[str, Json]:
    """Return the objects of a kind by name."""
    return {found["metadata"]["name"]: found for found in all_objects(overlay) if found["kind"] == kind}


def job_pods(overlay: str) -> Iterator[tuple[str, Json]]:
    """Return the name and the pod of each CronJob."""
    for name, job in of_kind(overlay, "CronJob").items():
        yield name, job["spec"]["jobTemplate"]["spec"]["template"]


def test_every_component_fits_an_overlay() -> None:
    named = {name for names in COMPONENTS.values() for name in names}
    assert {path.name for path in (KUBERNETES / "components").iterdir()} == named


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_matches_its_schema(overlay: str, version: str) -> None:
    for found in all_objects(overlay):
        if found["kind"] in CUSTOM:
            jsonschema.validate(found, CUSTOM[found["kind"]])
        else:
            assert kubernetes_validate.validate(found, version, strict=True) == version


def test_a_misspelt_field_does_not_match_the_schema() -> None:
    [service, *_] = all_of("fleet", "Service")
    with pytest.raises(kubernetes_validate.ValidationError, match="slector"):
        kubernetes_validate.validate(service | {"spec": {"slector": {}}}, VERSIONS[-1], strict=True)


@pytest.mark.parametrize(("kind", "misspelt"), [("ServiceMonitor", "endpoint"), ("PrometheusRule", "group")])
def test_a_misspelt_field_of_the_operator_does_not_match_its_schema(kind: str, misspelt: str) -> None:
    found = of_kind("fleet", kind)["trmon"]
    with pytest.raises(jsonschema.ValidationError, match=misspelt):
        jsonschema.validate(found | {"spec": {**found["spec"], misspelt: []}}, CUSTOM[kind])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_in_the_namespace_of_the_overlay(overlay: str) -> None:
    for found in all_objects(overlay):
        assert found["metadata"].get("namespace") == (None if found["kind"] in CLUSTER_WIDE else "trmon"), found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_components_change_nothing_of_the_overlay_but_priority_and_replicas(overlay: str) -> None:
    for found in OBJECTS[overlay]:
        if found["kind"] != "Deployment":
            assert found in all_objects(overlay)
            continue
        name, expected = found["metadata"]["name"], deepcopy(found)
        expected["spec"]["template"]["spec"]["priorityClassName"] = "trmon"
        if name == "trmon-worker":
            del expected["spec"]["replicas"]
        assert of_kind(overlay, "Deployment")[name] == expected
    assert "trmon" in of_kind(overlay, "PriorityClass")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_rules_and_dashboards_are_those_shipped(overlay: str) -> None:
    rules = {name: found["spec"] for name, found in of_kind(overlay, "PrometheusRule").items()}
    files = {"trmon": "trmon.yml", "trmon-runs": "runs.yml"}
    assert rules == {name: yaml.safe_load((RULES / file).read_text()) for name, file in files.items()}
    shown = list(of_kind(overlay, "ConfigMap").values())
    assert all(found["metadata"]["labels"]["grafana_dashboard"] == "1" for found in shown)
    data = {name: text for found in shown for name, text in found["data"].items()}
    assert data == {path.name: path.read_text() for path in (ROOT / "dashboards").glob("*.json")}
    # `kubectl apply` keeps a copy of an object in an annotation, and annotations have at most 256 KiB.
    assert all(len(text.encode()) < 200_000 for text in data.values())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_monitor_scrapes_every_pod_as_the_job_of_the_rules(overlay: str) -> None:
    monitor = of_kind(overlay, "ServiceMonitor")["trmon"]["spec"]
    endpoints = {endpoint["port"]: endpoint for endpoint in monitor["endpoints"]}
    assert ("authorization" in endpoints["http"], "authorization" in endpoints["metrics"]) == (True, False)
    services = of_kind(overlay, "Service").values()
    scraped = set()
    for service in services:
        assert selects(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
        assert service["metadata"]["labels"][monitor["jobLabel"]] == "trmon"
        for name, deployment in of_kind(overlay, "Deployment").items():
            pod = deployment["spec"]["template"]
            if selects(service["spec"]["selector"], pod["metadata"]["labels"]):
                [port] = service["spec"]["ports"]
                [offered] = pod["spec"]["containers"][0]["ports"]
                assert (port["targetPort"], port["port"]) == (offered["name"], offered["containerPort"])
                assert port["name"] in endpoints
                prometheus = {"kubernetes.io/metadata.name": "monitoring"}
                assert allows(all_objects(overlay), pod, direction="ingress", peer=prometheus, port=port["targetPort"])
                scraped.add(name)
    assert scraped == of_kind(overlay, "Deployment").keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_ingress_passes_what_the_service_takes(overlay: str) -> None:
    ingress = of_kind(overlay, "Ingress")["trmon"]
    [rule] = ingress["spec"]["rules"]
    [tls] = ingress["spec"]["tls"]
    assert tls["hosts"] == [rule["host"]]
    [path] = rule["http"]["paths"]
    service = of_kind(overlay, "Service")[path["backend"]["service"]["name"]]
    assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    size = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert int(size.removesuffix("m")) << 20 == Settings.model_fields["max_body_bytes"].default


def test_the_autoscaler_follows_the_backlog_and_alone_sets_the_workers() -> None:
    scaler = of_kind("fleet", "HorizontalPodAutoscaler")["trmon-worker"]["spec"]
    target = scaler["scaleTargetRef"]
    worker = of_kind("fleet", target["kind"])[target["name"]]
    assert worker["apiVersion"] == target["apiVersion"]
    assert "replicas" not in worker["spec"]
    [before] = [
        found["spec"]["replicas"]
        for found in all_of("fleet", "Deployment")
        if found["metadata"]["name"] == target["name"]
    ]
    assert scaler["minReplicas"] == before < scaler["maxReplicas"]
    [metric] = scaler["metrics"]
    rules = [rule for group in of_kind("fleet", "PrometheusRule")["trmon"]["spec"]["groups"] for rule in group["rules"]]
    [alert] = [rule["expr"] for rule in rules if rule.get("alert") == "TrmonJudgingBehind"]
    assert metric["external"]["metric"]["name"] in alert
    fires_at = float(alert.rpartition(">")[2])
    assert Settings.model_fields["grace_seconds"].default < float(metric["external"]["target"]["value"]) < fires_at


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pods_of_backups_are_confined_as_those_of_the_service(overlay: str) -> None:
    served = pod_of(overlay, "trmon")
    main = served["spec"]["containers"][0]
    images = {main["image"], SERVICES["postgres"]["image"]}
    claims = of_kind(overlay, "PersistentVolumeClaim")
    for _, pod in job_pods(overlay):
        for field in ("securityContext", "automountServiceAccountToken", "enableServiceLinks", "serviceAccountName"):
            assert pod["spec"][field] == served["spec"][field]
        for container in containers(pod):
            assert container["image"] in images
            assert container["securityContext"] == main["securityContext"]
            assert container["resources"] == main["resources"]
            named = {volume["name"] for volume in pod["spec"]["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= named
        for volume in pod["spec"]["volumes"]:
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
        # No Service, disruption budget or spread of the other pods counts a pod of a job.
        assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "backup"
        for port in (5432,) if overlay == "fleet" else ():
            assert allows(all_objects(overlay), pod, direction="egress", peer="10.1.2.3", port=port)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_restore_never_starts_by_itself(overlay: str) -> None:
    jobs = of_kind(overlay, "CronJob")
    assert {name: job["spec"].get("suspend", False) for name, job in jobs.items()} == {
        "trmon-backup": False,
        "trmon-restore": True,
    }


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
