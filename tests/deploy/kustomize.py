"""Renders the overlays of deploy/kubernetes as kustomize does, for the fields that they use; others are refused.

A test compares the result with that of `kubectl kustomize`, where one is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.deploy.image import ROOT

Json = dict[str, Any]

KUBERNETES = ROOT / "deploy" / "kubernetes"
FIELDS = {"apiVersion", "kind", "namespace", "resources", "patches"}
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}
"""The key by which Kubernetes merges a list; it replaces other lists."""


def rendered(folder: Path) -> list[Json]:
    """Return the objects of a folder with a kustomization.yaml."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization.keys() <= FIELDS, f"fields that are not rendered: {kustomization.keys() - FIELDS}"
    objects = [found for name in kustomization["resources"] for found in _resources(folder / name)]
    for patch in kustomization.get("patches", ()):
        assert patch.keys() == {"path"}, "only patches in files of their own are rendered"
        [change] = _documents(folder / patch["path"])
        [index] = [i for i, known in enumerate(objects) if identity(known) == identity(change)]
        objects[index] = merged(objects[index], change)
    return [_in_namespace(found, kustomization["namespace"]) for found in objects]


def identity(found: Json) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


def merged(old: Json, change: Json) -> Json:
    """Return an object after a strategic merge patch without directives."""
    return old | {name: _merged_value(name, old.get(name), value) for name, value in change.items()}


def _merged_value(name: str, old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return merged(old, new)
    if isinstance(old, list) and name in MERGE_KEYS:
        return _merged_list(old, new, key=MERGE_KEYS[name])
    return new


def _merged_list(old: list[Json], new: list[Json], *, key: str) -> list[Json]:
    """Merge elements that have the same key; new ones follow."""
    changes = {element[key]: element for element in new}
    kept = [merged(element, changes.pop(element[key], {})) for element in old]
    return [*kept, *changes.values()]


def _resources(path: Path) -> list[Json]:
    return rendered(path) if path.is_dir() else _documents(path)


def _documents(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text()))


def _in_namespace(found: Json, namespace: str) -> Json:
    if found["kind"] == "Namespace":
        return found
    return found | {"metadata": {**found["metadata"], "namespace": namespace}}
