"""The page of one participant."""
