"""A model of what a workload costs each part of a deployment, from measured demands."""
