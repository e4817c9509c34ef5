"""The format `reput` over the network: with the option `namesrv`, messages of brokers instead of a directory's.

`options`, `queue_ranges` and `wire_offset` are pure. `cluster` asks name servers and brokers; `pulls` reads a range of
a queue. Over these stand the batch reader, the stream reader and the writers.
"""
