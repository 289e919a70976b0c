"""The version, in a module of its own so that no room needs the whole package for it."""

__version__ = "2.0.0rc1"
