"""`reput dump`: a module for each kind of file."""
