"""Rules of POP, without sockets and clock."""
