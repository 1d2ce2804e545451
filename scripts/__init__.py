"""Programs beside the package."""
