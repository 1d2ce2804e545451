"""Small inputs that gave silent wrong numbers, each the representative of a kind, through the command."""
