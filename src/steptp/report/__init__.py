"""HTML pages: one file each, no scripts, nothing loaded from elsewhere."""
