"""Jobs over a store: a plan, a pure task for each item of it, and a merge of the small results."""
