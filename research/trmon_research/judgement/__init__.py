"""The figures of the judge: over real runs, the stored runs of the lab, and the benchmark of detection."""
