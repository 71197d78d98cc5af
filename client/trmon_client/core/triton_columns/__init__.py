"""Reduction of CUDA tensors in one Triton kernel that reads each token once."""
