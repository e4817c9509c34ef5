"""`reput stats`: once, followed, and as a report."""
