"""The program that a `FakeClaude` runs: standard library only, so that it starts in the time a shell would take.

It is run by path, never through `claude_transport` (whose import costs more than the program); `__main__` therefore imports it as
a package of its own, and everything below uses relative imports and no `typing`.
"""
