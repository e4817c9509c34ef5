"""A broker: RocketMQ's requests over the services and a store, in one event loop."""
