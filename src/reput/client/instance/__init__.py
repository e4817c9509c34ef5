"""Parts that producers and consumers share: connections, routes, requests, messages, traces (`MQClientInstance`)."""
