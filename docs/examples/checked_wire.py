"""What a line says that the schemas of the wire do not: for a test that watches a claude, or a log of one."""

from __future__ import annotations

from claude_transport.wire import WireCheck

LINES = (
    b'{"type": "command_lifecycle", "command_uuid": "u", "state": "started", "mood": "glad"}',
    b'{"type": "command_lifecycle", "command_uuid": "u", "state": 2}',
)


def main() -> None:
    check = WireCheck(cli_version="2.1.330")
    for line in LINES:
        check.add("out", line)
    for finding in check.findings:
        print(finding.kind, finding.message, finding.path, finding.expected or "-", finding.found, finding.count)


if __name__ == "__main__":
    main()
