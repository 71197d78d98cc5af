"""The objects of each overlay of deploy/kubernetes, rendered."""

from __future__ import annotations

from tests.deploy.kustomize import KUBERNETES, Json, identity, rendered

OVERLAYS = ("embedded", "fleet")
OBJECTS = {overlay: rendered(KUBERNETES / "overlays" / overlay) for overlay in OVERLAYS}
SECRETS = "/run/secrets/trmon"
"""Where a pod has the files of the Secret."""


def all_of(overlay: str, kind: str) -> list[Json]:
    return [found for found in OBJECTS[overlay] if found["kind"] == kind]


def pod_of(overlay: str, deployment: str) -> Json:
    """Return the template of a Deployment's pods."""
    [pod] = [found["spec"]["template"] for found in OBJECTS[overlay] if identity(found) == ("Deployment", deployment)]
    return dict(pod)


def containers(pod: Json) -> list[Json]:
    """Return the containers of a pod, in the order in which they start."""
    return [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
