"""Documents over HTTP: one, page after page, and piece by piece."""
