"""Rules of RocketMQ 5's gRPC protocol: what is refused, settings, messages as clients see them, handles."""
