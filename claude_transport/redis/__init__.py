"""A Redis or Valkey server, for all that use one: its URL, and the connection to it."""
