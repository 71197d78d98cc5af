"""The overlays of deploy/kubernetes match Kubernetes' schemas, the image, the service and each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.confined import directives
from tests.deploy.image import SERVICES, Image
from tests.deploy.manifests import OBJECTS, OVERLAYS, SECRETS, Json, all_of, allows, containers, pod_of, selects
from trmon.api.http.components import TIMEOUT_SECONDS
from trmon.bootstrap.app import GRACE_SECONDS, ROUTERS
from trmon.config.settings import SECRET_FILES, Settings, unknown_variables

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


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_namespace_admits_only_restricted_pods(overlay: str) -> None:
    [namespace] = all_of(overlay, "Namespace")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    assert (namespace["metadata"]["name"], namespace["metadata"]["labels"]) == ("trmon", labels)


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
def test_the_probes_ask_ports_and_paths_that_exist(overlay: str, pod: Json) -> None:
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
        known = {getattr(route, "path", None) for router in ROUTERS for route in router.routes}
        assert set(paths.values()) <= known


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


MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
TRAINING = {"kubernetes.io/metadata.name": "training"}


@pytest.mark.parametrize(("overlay", "name"), [("embedded", "trmon"), ("fleet", "trmon"), ("fleet", "trmon-worker")])
def test_every_pod_reaches_names_and_nothing_that_it_does_not_need(overlay: str, name: str) -> None:
    objects, pod = OBJECTS[overlay], pod_of(overlay, name)
    for protocol in ("UDP", "TCP"):
        assert allows(objects, pod, direction="egress", peer="10.0.0.10", port=53, protocol=protocol)
    assert not allows(objects, pod, direction="egress", peer="10.0.0.10", port=22)
    assert not allows(objects, pod, direction="ingress", peer=TRAINING, port=22)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_trainers_and_prometheus_reach_the_api(overlay: str) -> None:
    pod = pod_of(overlay, "trmon")
    for peer in (TRAINING, MONITORING):
        assert allows(OBJECTS[overlay], pod, direction="ingress", peer=peer, port="http")


def test_only_prometheus_reaches_the_metrics_of_a_worker() -> None:
    pod = pod_of("fleet", "trmon-worker")
    assert allows(OBJECTS["fleet"], pod, direction="ingress", peer=MONITORING, port="metrics")
    assert not allows(OBJECTS["fleet"], pod, direction="ingress", peer=TRAINING, port="metrics")


@pytest.mark.parametrize("port", [5432, 6379])
def test_only_a_fleet_reaches_databases(port: int) -> None:
    for name in ("trmon", "trmon-worker"):
        pod = pod_of("fleet", name)
        assert allows(OBJECTS["fleet"], pod, direction="egress", peer="10.0.0.20", port=port)
        assert allows(OBJECTS["fleet"], pod, direction="egress", peer=TRAINING, port=port)
    pod = pod_of("embedded", "trmon")
    assert not allows(OBJECTS["embedded"], pod, direction="egress", peer="10.0.0.20", port=port)


@pytest.mark.parametrize(
    ("overlay", "name", "sends"),
    [("embedded", "trmon", True), ("fleet", "trmon-worker", True), ("fleet", "trmon", False)],
)
def test_only_what_sends_alerts_reaches_receivers(overlay: str, name: str, *, sends: bool) -> None:
    pod = pod_of(overlay, name)
    for peer in ("203.0.113.7", "2001:db8::7"):
        assert allows(OBJECTS[overlay], pod, direction="egress", peer=peer, port=443) is sends
        assert allows(OBJECTS[overlay], pod, direction="egress", peer=peer, port=587) is sends
    assert allows(OBJECTS[overlay], pod, direction="egress", peer=MONITORING, port=9093) is sends
    for metadata in ("169.254.169.254", "fd00:ec2::254"):
        assert not allows(OBJECTS[overlay], pod, direction="egress", peer=metadata, port=443)
