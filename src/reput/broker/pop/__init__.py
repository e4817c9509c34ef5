"""POP: messages for whoever asks, without queues of one's own; acks, and what was not acked again."""
