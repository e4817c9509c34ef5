"""A tutorial as a script and as a notebook, which are the same cells."""
