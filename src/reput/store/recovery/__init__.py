"""Every start of a store: plan, then changes."""
