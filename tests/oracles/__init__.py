"""Plain Python twins of the kernels: slow, short, and written from the format's rules rather than from the kernels."""
