"""Parts of every page: template, panels, drawings, matrices, methods text."""
