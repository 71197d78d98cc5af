"""What the NetworkPolicies of rendered objects allow, as Kubernetes reads them."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from tests.deploy.manifests import Json

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
