"""The bytes of RocketMQ's store: each format is encoded and decoded in one place (docs/formats)."""
