"""A classifier behind HTTP, and a page to teach it."""
