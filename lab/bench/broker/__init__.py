"""The broker beside RocketMQ's: the same requests by RocketMQ's own client, on the same machine, in turns."""
