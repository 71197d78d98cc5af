"""OpenRLHF imports vLLM and flash-attn, which need a GPU: here their modules are empty, and nothing calls them."""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class EmptyModule(ModuleType):
    """A module in which each name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class EmptyModules(MetaPathFinder, Loader):
    """Finds the modules of the packages that are not installed."""

    PACKAGES = ("flash_attn", "vllm")

    def find_spec(self, fullname: str, *_where: object) -> ModuleSpec | None:
        """Find a module of the packages."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in self.PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


sys.meta_path.append(EmptyModules())
# Ray gives its processes 30 s to start and to find each other, which a busy machine exceeds.
PATIENCE = {
    "raylet_start_wait_time_s": "300",
    "agent_register_timeout_ms": "300000",
    "gcs_server_request_timeout_seconds": "300",
    "gcs_rpc_server_connect_timeout_s": "300",
    "worker_register_timeout_seconds": "300",
}
os.environ.update({f"RAY_{name}": value for name, value in PATIENCE.items()})
