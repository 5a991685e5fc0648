"""The program behind `FakeClaude`. It uses the standard library only, so that it starts as fast as a shell.

It is run by path and never through `claude_transport`, whose import takes longer than the whole program. Therefore `__main__` imports it
as a package of its own, and all modules here use relative imports and do not import `typing` at run time.
"""
