"""Simulated runs whose token statistics are like those of language: 30 healthy and 30 ill, each with its ground truth."""
