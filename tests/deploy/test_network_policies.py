"""The NetworkPolicies of deploy/kubernetes let each pod do what it needs, and nothing else."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import OBJECTS, OVERLAYS, pod_of
from tests.deploy.network_policies import allows

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
