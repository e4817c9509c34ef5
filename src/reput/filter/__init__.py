"""SQL92 expressions that choose messages by their properties (RocketMQ's module `filter`)."""
