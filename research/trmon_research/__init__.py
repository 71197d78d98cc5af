"""Studies of trmon: sweeps of labelled runs, interventions, the collapse and detection benchmarks, soft masking."""
