"""The objects of each overlay of deploy/kubernetes, alone and with every component that fits it, rendered by kubectl.

Without kubectl, tests of them are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.image import ROOT

Json = dict[str, Any]

if shutil.which("kubectl") is None:
    pytest.skip("no kubectl here; as root: apt-get install kubernetes-client", allow_module_level=True)


def rendered(folder: Path) -> list[Json]:
    """Return the objects of a folder with a kustomization.yaml."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


OVERLAYS = ("embedded", "fleet")
KUBERNETES = ROOT / "deploy" / "kubernetes"
OBJECTS = {overlay: rendered(KUBERNETES / "overlays" / overlay) for overlay in OVERLAYS}
SHARED_COMPONENTS = ("ingress", "monitoring", "priority", "run-alerts")
COMPONENTS = {
    "embedded": (*SHARED_COMPONENTS, "backup-embedded"),
    "fleet": (*SHARED_COMPONENTS, "backup-fleet", "autoscaling"),
}
"""The components that fit each overlay."""
SECRETS = "/run/secrets/trmon"
"""Where a pod has the files of the Secret."""


def all_of(overlay: str, kind: str) -> list[Json]:
    return [found for found in OBJECTS[overlay] if found["kind"] == kind]


def pod_of(overlay: str, deployment: str) -> Json:
    """Return the template of a Deployment's pods."""
    [pod] = [one["spec"]["template"] for one in all_of(overlay, "Deployment") if one["metadata"]["name"] == deployment]
    return dict(pod)


def containers(pod: Json) -> list[Json]:
    """Return the containers of a pod, in the order in which they start."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def customized(document: Json) -> list[Json]:
    """Return the objects of a kustomization of your own, beside which the repository is `../trmon`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "trmon").symlink_to(ROOT)
        own = Path(folder, "own")
        own.mkdir()
        (own / "kustomization.yaml").write_text(yaml.safe_dump(document))
        return rendered(own)


def extended(overlay: str) -> list[Json]:
    """Return the objects of an overlay with every component that fits it."""
    shipped = "../trmon/deploy/kubernetes"
    return customized(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{shipped}/overlays/{overlay}"],
            "components": [f"{shipped}/components/{name}" for name in COMPONENTS[overlay]],
        }
    )


Peer = dict[str, str] | str
"""The labels of a namespace, of which any pod may be the other side; or an address outside the cluster."""


def allows(
    objects: list[Json], pod: Json, *, direction: str, peer: Peer, port: int | str, protocol: str = "TCP"
) -> bool:
    """Return whether a pod may be reached (ingress) or may reach (egress) the peer on a port, by number or name."""
    policies = list(_policies(objects, pod, direction))
    side = "from" if direction == "ingress" else "to"
    return not policies or any(
        _has_port(rule, port, protocol) and _has_peer(rule.get(side), peer)
        for policy in policies
        for rule in policy["spec"].get(direction, ())
    )


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Return whether labels match a selector by equality."""
    return selector.items() <= labels.items()


def _policies(objects: list[Json], pod: Json, direction: str) -> Iterator[Json]:
    labels = pod["metadata"]["labels"]
    for found in objects:
        if found["kind"] != "NetworkPolicy" or direction.capitalize() not in found["spec"]["policyTypes"]:
            continue
        if selects(found["spec"]["podSelector"]["matchLabels"], labels):
            yield found


def _has_port(rule: Json, port: int | str, protocol: str) -> bool:
    return any((known["port"], known["protocol"]) == (port, protocol) for known in rule["ports"])


def _has_peer(peers: list[Json] | None, peer: Peer) -> bool:
    return peers is None or any(_is_peer(known, peer) for known in peers)


def _is_peer(known: Json, peer: Peer) -> bool:
    if isinstance(peer, dict):
        selector = known.get("namespaceSelector")
        return selector is not None and selects(selector.get("matchLabels", {}), peer)
    block, address = known.get("ipBlock"), ip_address(peer)
    if block is None or address not in ip_network(block["cidr"]):
        return False
    return not any(address in ip_network(excluded) for excluded in block["except"])
