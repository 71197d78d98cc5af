"""The objects of each overlay of deploy/kubernetes, rendered by kubectl; without it, tests of them are skipped."""

from __future__ import annotations

import shutil
import subprocess
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
    return list(yaml.safe_load_all(done.stdout))


OVERLAYS = ("embedded", "fleet")
OBJECTS = {overlay: rendered(ROOT / "deploy" / "kubernetes" / "overlays" / overlay) for overlay in OVERLAYS}
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
    return [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
