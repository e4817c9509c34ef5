"""Output of commands: tables, lines, JSON, logs, screens."""
