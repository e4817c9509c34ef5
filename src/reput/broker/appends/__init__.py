"""Messages on their way into the log, and when their answers may go."""
