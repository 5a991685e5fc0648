"""Stand-ins for Codex: a fake program with its scenarios, and a fake Responses API. `claude_transport.testing` offers their names."""
