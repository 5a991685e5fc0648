"""Plays the scenario in the directory named by the first argument; all further arguments are the CLI's own and only looked at."""

import os
import sys


def main() -> None:
    directory, argv = sys.argv[1], sys.argv[2:]
    if argv and argv[0] in ("-v", "--version"):
        os.write(1, b"2.1.329 (Claude Code)\n")
        return
    # appended, not put first: the folder's other modules must not hide the standard library's
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
    from fake_claude_process.session import play_scenario  # type: ignore[import-not-found,unused-ignore] # pyright: ignore[reportMissingImports]

    play_scenario(directory, argv)


if __name__ == "__main__":
    main()
