"""Each folder is one thing to a person, whole."""
