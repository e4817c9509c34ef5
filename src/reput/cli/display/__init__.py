"""What commands show: tables, lines, JSON, logs, screens."""
