"""One query that only reads, on each of the databases."""
