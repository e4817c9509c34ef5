"""Parts of kernels: their compilation and its cache, memory, C functions, hashes and numbers in text."""
