"""The catalogue of signals, which documentation and Prometheus use."""

from __future__ import annotations

from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS


def test_pair_signals_exist_once_per_pair_with_its_prefix() -> None:
    for pair in PAIRS:
        of_pair = [spec for spec in SIGNALS.values() if spec.pair == pair]
        assert len(of_pair) == 47
        assert all(spec.per_pair and spec.name == f"{pair}_{spec.stem}" for spec in of_pair)
    assert len({spec.stem for spec in SIGNALS.values() if spec.core}) == 24


def test_every_signal_has_a_one_line_description() -> None:
    for spec in SIGNALS.values():
        assert spec.formula
        assert 0 < len(spec.description) <= 80
        assert not set(spec.description) & set('"\\\n')


def test_healthy_ranges_are_those_of_the_sources_and_not_the_limits_of_findings() -> None:
    """Three signals depend on lengths and noise: no absolute value of them is healthy. Source: formulas, section 9."""
    healthy = {spec.stem: spec.healthy for spec in SIGNALS.values()}
    assert (healthy["kl_k3"], healthy["band_fraction"], healthy["ppl_ratio"]) == ("< 0.005", "< 0.01", "0.99 to 1.01")
    assert [healthy[name] for name in ("abs_log_ratio_max", "chi2_seq", "chi2_seq_log1p", "tv")] == [""] * 4
