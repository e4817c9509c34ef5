"""From records of the log to queues and index."""
