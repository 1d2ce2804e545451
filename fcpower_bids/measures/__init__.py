"""Tables computed from one recording; each entry is one new output."""
