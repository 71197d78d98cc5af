"""The overlays of deploy/kubernetes match Kubernetes' schemas, the image, the service and each other."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest

from tests.deploy.compose import SERVICES
from tests.deploy.confined import directives
from tests.deploy.image import Image
from tests.deploy.manifests import OBJECTS, OVERLAYS, SECRETS, Json, all_of, containers, pod_of
from tests.deploy.network_policies import selects
from trmon.api.http.components import TIMEOUT_SECONDS
from trmon.bootstrap.app import GRACE_SECONDS, create_app
from trmon.config.settings import SECRET_FILES, Settings, unknown_variables

VERSIONS = ("1.25", kubernetes_validate.latest_version().rpartition(".")[0])
"""Of Kubernetes: the oldest and the newest with a schema."""
UID = 10001


PODS = [
    pytest.param(overlay, pod_of(overlay, name), id=f"{overlay}-{name}")
    for overlay, name in (("embedded", "trmon"), ("fleet", "trmon"), ("fleet", "trmon-worker"))
]
CONTAINERS = [
    pytest.param(*param.values, container, id=f"{param.id}-{container['name']}")
    for param in PODS
    for container in containers(param.values[1])
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_matches_the_schema_of_kubernetes(overlay: str, version: str) -> None:
    for found in OBJECTS[overlay]:
        assert kubernetes_validate.validate(found, version, strict=True) == version


def test_a_misspelt_field_does_not_match_the_schema() -> None:
    [service, *_] = all_of("fleet", "Service")
    with pytest.raises(kubernetes_validate.ValidationError, match="slector"):
        kubernetes_validate.validate(service | {"spec": {"slector": {}}}, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_in_the_namespace_that_admits_only_restricted_pods(overlay: str) -> None:
    assert {found["metadata"].get("namespace", found["metadata"]["name"]) for found in OBJECTS[overlay]} == {"trmon"}
    [namespace] = all_of(overlay, "Namespace")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_secret_is_in_the_repository(overlay: str) -> None:
    assert all_of(overlay, "Secret") == []


@pytest.mark.parametrize(("overlay", "pod", "container"), CONTAINERS)
def test_every_setting_exists_and_every_secret_is_a_mounted_file(overlay: str, pod: Json, container: Json) -> None:
    variables = {variable["name"]: variable["value"] for variable in container.get("env", ())}
    assert list(unknown_variables(variables)) == []
    assert set(variables) <= {f"TRMON_{name.upper()}" for name in SECRET_FILES}
    assert {str(Path(path).parent) for path in variables.values()} <= {SECRETS}
    assert bool(variables) is (overlay == "fleet")
    [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "secrets"]
    assert volume["secret"].get("optional", False) is (overlay == "embedded")
    assert volume["secret"]["defaultMode"] == 0o440


@pytest.mark.parametrize(("overlay", "pod", "container"), CONTAINERS)
def test_every_container_is_that_of_compose_confined_and_limited(overlay: str, pod: Json, container: Json) -> None:
    service = SERVICES["trmon" if overlay == "embedded" else "api"]
    assert container["image"] == service["image"]
    assert container["args"][0] in {"migrate", "serve", "worker"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert limits == {"cpu": f"{service['cpus']:g}", "memory": service["mem_limit"].upper() + "i"}
    assert requests.keys() == limits.keys()
    mounted = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounted.keys() <= {volume["name"] for volume in pod["spec"]["volumes"]}
    assert mounted["tmp"]["mountPath"] == "/tmp"
    assert mounted["secrets"] == {"name": "secrets", "mountPath": SECRETS, "readOnly": True}


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_every_pod_runs_as_the_user_of_the_image_and_stops_in_time(overlay: str, pod: Json) -> None:
    spec = pod["spec"]
    assert Image.read().one("USER") == str(UID)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), UID),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    [stop] = directives("TimeoutStopSec")
    assert spec["terminationGracePeriodSeconds"] == int(stop)
    [container] = spec["containers"]
    delay = int(container["lifecycle"]["preStop"]["exec"]["command"][-1]) if "lifecycle" in container else 0
    assert spec["terminationGracePeriodSeconds"] >= 2 * (delay + GRACE_SECONDS)


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_the_probes_ask_ports_and_paths_that_exist(overlay: str, pod: Json, tmp_path: Path) -> None:
    [container] = pod["spec"]["containers"]
    [port] = container["ports"]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {port["name"]}
    assert all(probe["timeoutSeconds"] > TIMEOUT_SECONDS for probe in probes.values())
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    if container["args"][0] == "worker":
        assert container["args"] == ["worker", "--metrics-port", str(port["containerPort"])]
        assert set(paths.values()) == {"/healthz"}
    else:
        assert port["containerPort"] == Settings.model_fields["port"].default
        assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        assert set(paths.values()) <= create_app(Settings(data_dir=tmp_path)).openapi()["paths"].keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_selector_finds_the_pods_that_it_is_for(overlay: str) -> None:
    pods = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in all_of(overlay, "Deployment")
    }

    def found_by(selector: dict[str, str]) -> set[str]:
        return {name for name, labels in pods.items() if selects(selector, labels)}

    for deployment in all_of(overlay, "Deployment"):
        assert found_by(deployment["spec"]["selector"]["matchLabels"]) == {deployment["metadata"]["name"]}
    assert {found["metadata"]["name"] for found in all_of(overlay, "Service")} == pods.keys()
    for service in all_of(overlay, "Service"):
        name = service["metadata"]["name"]
        assert found_by(service["spec"]["selector"]) == {name}
        [port] = service["spec"]["ports"]
        [container] = pod_of(overlay, name)["spec"]["containers"]
        assert port["targetPort"] in {known["name"] for known in container["ports"]}
    for policy in all_of(overlay, "NetworkPolicy"):
        assert found_by(policy["spec"]["podSelector"]["matchLabels"])


def test_a_disruption_takes_one_pod_of_each_kind_in_a_fleet() -> None:
    assert all_of("embedded", "PodDisruptionBudget") == []  # of one pod it would keep a node from being drained
    budgets = {found["metadata"]["name"]: found["spec"] for found in all_of("fleet", "PodDisruptionBudget")}
    for deployment in all_of("fleet", "Deployment"):
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        assert budgets[name] == {"maxUnavailable": 1, "selector": spec["selector"]}
        assert spec["replicas"] > 1
        [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == spec["selector"]


def test_the_embedded_service_has_one_pod_and_keeps_its_data_and_tokens() -> None:
    [deployment] = all_of("embedded", "Deployment")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    [claim] = all_of("embedded", "PersistentVolumeClaim")
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert size >= 2 * Settings.model_fields["retention_bytes"].default
    environment = Image.read().environment
    [container] = spec["template"]["spec"]["containers"]
    mounted = {
        mount["mountPath"]: mount.get("subPath") for mount in container["volumeMounts"] if mount["name"] == "data"
    }
    assert mounted == {environment["TRMON_DATA_DIR"]: "data", f"{environment['SECRETS']}/tokens": "tokens"}
    assert "command" not in container  # the image's entrypoint creates the tokens


def test_pods_of_a_fleet_create_no_tokens() -> None:
    [container] = pod_of("fleet", "trmon")["spec"]["containers"]
    assert container["command"] == ["trmon"]
