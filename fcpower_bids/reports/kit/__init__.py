"""What every page is made of: template, panels, drawings, matrices, methods text."""
