"""Series and connectomes that other programs made: declared layouts, lists, and the formats that they come in."""
