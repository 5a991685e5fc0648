"""The program `claude-transport`: `ask` a Claude one thing, let the `doctor` say what works, `inspect` what is on a tape.

```text
main ──arguments──> ask    ──> answer ──> render · render_rich     (stdout: the answer, or NDJSON; stderr: everything else)
                    doctor ──> checkup ──> render_report
                    record ──> ask, around whose transport there is a RecordingTransport · replay: a tape on stdin and stdout
                    inspect_tape ──> render_inspection, or the page of `inspection` · progress
                    bench ──> bench_run: how fast reading is here
                    shell_completion, and docs/generate_program.py: made from what `Parser` says it reads · manual: the rest of `--help`
        failures: every error as an exit code and a few lines · interruption: Ctrl-C leaves nothing running
```
"""
