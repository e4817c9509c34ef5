"""The laboratory: benchmarks, campaigns that try to lose messages, and RocketMQ itself on the other side."""
