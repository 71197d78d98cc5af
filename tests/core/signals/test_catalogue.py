"""The catalogue of signals, which documentation and Prometheus use."""

from __future__ import annotations

from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS

CORE_STEMS = {
    *("kl_k1", "kl_k2", "kl_k3", "ratio_mean", "abs_log_ratio_mean", "abs_log_ratio_max", "chi2_token"),
    *("chi2_token_p95", "chi2_seq_log1p", "ess_token", "ess_seq", "tv", "prob_pearson", "prob_diff_max", "ppl_ratio"),
    *("binary_kl_max", "band_fraction", "response_length_mean", "reward_mean", "clip_fraction", "invalid_fraction"),
    *("saturated_fraction", "zero_variance_groups", "version_lag_mean"),
}


def test_the_core_signals_are_the_24_that_prometheus_exposes() -> None:
    assert {spec.stem for spec in SIGNALS.values() if spec.core} == CORE_STEMS


def test_pair_signals_exist_once_per_pair_with_its_prefix() -> None:
    for pair in PAIRS:
        of_pair = [spec for spec in SIGNALS.values() if spec.pair == pair]
        assert len(of_pair) == 47
        assert all(spec.per_pair and spec.name == f"{pair}_{spec.stem}" for spec in of_pair)


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
