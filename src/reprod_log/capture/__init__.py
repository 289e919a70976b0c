"""capture: watches a model while it runs and copies out what it computes."""
