"""Batch signals computed from columns, and the catalogue of signals."""

from trmon_client.core.signals.batch_signals import REGISTRY_VERSION, SIGNALS, SignalSpec, compute

__all__ = ["REGISTRY_VERSION", "SIGNALS", "SignalSpec", "compute"]
