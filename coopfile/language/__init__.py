"""Text to settings: loading, positions, validation, merging, diagnostics."""
