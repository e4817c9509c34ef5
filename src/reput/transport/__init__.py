"""RocketMQ's remoting protocol over TCP with asyncio: connections, servers, and calls to other servers."""
