"""Configuration under RocketMQ's own names: values only, no behaviour."""
