"""What Ray calls in its workers: trmon's hook, after the stand-ins for vLLM and flash-attn."""

from __future__ import annotations

from trmon_client.integrations.openrlhf import hook_openrlhf


def hook_worker() -> None:
    """Prepare a worker of Ray."""
    from tests.peers.openrlhf import conftest  # noqa: F401  it installs the stand-ins

    hook_openrlhf()
