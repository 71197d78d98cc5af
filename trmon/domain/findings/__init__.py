"""Findings: what is wrong with a run, defined once in findings.yaml, folded row by row, and said in one voice."""
