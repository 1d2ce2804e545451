"""What documents and other programs are generated from the settings and the declared tables."""
