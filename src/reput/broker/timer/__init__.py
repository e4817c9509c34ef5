"""Messages with a time: delivered when it has come, and recalled before."""
