"""The command `reput`: one file a command. Every command takes the store's path first, long options, and `--json`."""
