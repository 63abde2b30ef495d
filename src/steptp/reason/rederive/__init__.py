"""Re-deriving claims from the two programs. One function a kind; each returns what is wrong, or ``None``."""
