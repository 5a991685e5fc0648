"""The program `claude-transport`. `main` is its entry point, and the only module that knows all commands.

```text
main ──arguments (click)──> ask (also record) ──> render · render_rich      stdout: the answer, or NDJSON; stderr: everything else
                            doctor · serve · inspect_tape · replay · bench
                            shell_completion: scripts for bash, zsh and fish
main ──without click──────> mcp_bridge
```

All of them use `event_loop` (asyncio or trio, signals), `terminal` and `standard_streams` (output), and `failures` (exit codes and errors).
"""
