"""The pytest plugin: fixtures for people who test programs that talk to Claude (entry point `pytest11`)."""

from __future__ import annotations
