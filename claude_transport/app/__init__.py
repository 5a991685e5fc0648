"""The program `claude-transport`: `ask` a Claude one thing, and let the `doctor` say what would run and whether it works.

```text
main ──arguments──> ask    ──> answer ──> render · render_rich     (stdout: the answer, or NDJSON; stderr: everything else)
                    doctor ──> checkup ──> render_report
        failures: every error as an exit code and a few lines · interruption: Ctrl-C leaves nothing running
```
"""
