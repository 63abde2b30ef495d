"""Records, journal, walks, filters, splits, views, card and audit of a step dataset (``docs/schema.md``)."""
