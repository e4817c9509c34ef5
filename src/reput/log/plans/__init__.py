"""Plans of a read: which parts of a log can have what is wanted."""
