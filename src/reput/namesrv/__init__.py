"""Name server: which brokers there are, and where the queues of each topic are. In memory, but for its KV values."""
