"""The same reduction by kernels that numba compiles, used once `kernel_loading` has loaded them."""
