"""Feeds of every format as entries, and entries as posts."""
