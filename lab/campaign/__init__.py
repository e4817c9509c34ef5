"""The machine that tries to lose a message: `make campaign`."""
