"""Play the scenario in the directory that the first argument names. All further arguments are those of the CLI."""

import os
import sys


def main() -> None:
    directory, argv = sys.argv[1], sys.argv[2:]
    # appended, not put first: other modules of that folder must not hide modules of the standard library
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
    from fake_claude_process.session import play_scenario  # type: ignore[import-not-found,unused-ignore] # pyright: ignore[reportMissingImports]

    play_scenario(directory, argv)


if __name__ == "__main__":
    main()
