"""RocketMQ's remoting protocol without input and output: bytes in, commands out, and the other way round."""
