"""Runs the program `claude-transport` as `python -m claude_transport`."""

from __future__ import annotations

import sys

from claude_transport.app.main import main

if __name__ == "__main__":
    sys.exit(main())
