"""The program behind `FakeCodex`. It uses the standard library only, and what `fake_claude_process` has for pipes, signals and waiting."""
