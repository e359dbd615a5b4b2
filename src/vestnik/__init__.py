"""Vestnik: publish once, arrive in every channel."""

__version__ = "0.1.0"
