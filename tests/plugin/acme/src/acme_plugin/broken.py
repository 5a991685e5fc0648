"""It cannot be imported."""

raise RuntimeError("acme_plugin.broken was imported")
