"""Records: bytes of the log -> columns and Arrow, and back."""
