"""`make soak`: an hour of everything at once, with kills, watched from outside."""
