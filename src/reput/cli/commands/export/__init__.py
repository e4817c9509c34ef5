"""`reput export`: its options, the run, and its report."""
