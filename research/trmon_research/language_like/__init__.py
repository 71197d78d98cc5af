"""Simulated runs whose tokens are like those of language: 30 healthy and 30 ill, each with its ground truth."""
