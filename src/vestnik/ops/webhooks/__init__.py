"""Webhooks: what other programs are told, signed as Standard Webhooks."""
