"""RocketMQ 5's gRPC protocol: its messages, and how they are read and written."""
