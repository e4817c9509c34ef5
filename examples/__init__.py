"""Programs that show what reput is for; each one is run by a test."""
