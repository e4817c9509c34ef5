"""Calls of RocketMQ 5's gRPC clients, over the processors that answer requests of the remoting protocol."""
