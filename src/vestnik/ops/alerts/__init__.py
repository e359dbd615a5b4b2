"""Alerts: what needs a person, and who is told of it."""
