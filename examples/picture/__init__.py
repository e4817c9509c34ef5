"""The picture of a report in docs/report.png: a made-up day of messages, `reput stats`, and a browser."""
