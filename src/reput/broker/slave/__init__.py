"""The slave: a broker that copies a master, answers readers, and takes no messages of its own."""
