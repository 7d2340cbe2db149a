"""Coop: a declarative sandbox for AI agents and any other untrusted command."""

__version__ = "0.1.0"
