"""Batch signals, computed from columns, and their catalogue."""

from trmon_client.core.signals.batch_signals import REGISTRY_VERSION, SIGNALS, SignalSpec, compute

__all__ = ["REGISTRY_VERSION", "SIGNALS", "SignalSpec", "compute"]
