"""Pages for people: the prediction of a person, and whose scan it is."""
