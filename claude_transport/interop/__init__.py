"""Bridges to other libraries, none of which this package depends on: each is imported by the function that needs it."""
