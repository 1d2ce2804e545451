"""Programs for who changes this project: images, references, comparisons."""
