"""Administration: what `reput admin` asks of name servers and brokers, RocketMQ's too, of 4.9 and 5.x."""
