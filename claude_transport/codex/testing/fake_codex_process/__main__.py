"""Play the scenario in the directory that the first argument names. All further arguments are those of `codex`."""

import os
import sys


def main() -> None:
    directory, argv = sys.argv[1], sys.argv[2:]
    if argv and argv[0] in ("-V", "--version"):
        os.write(1, b"codex-cli 0.169.0\n")
        return
    # appended, not put first: other modules of that folder must not hide modules of the standard library
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs 5 ms
    sys.path += [here, f"{here}/../../testing"]  # the second one for the steps that it shares with the fake of claude
    from fake_codex_process.server import play_scenario  # type: ignore[import-not-found,unused-ignore] # pyright: ignore[reportMissingImports]

    play_scenario(directory, argv)


if __name__ == "__main__":
    main()
