"""Where the command `reput` begins, which `python -m reput` is, too."""

import sys


def main() -> None:
    """Import the commands, then run one; the process ends with its status.

    An interrupt while they are imported, or made, ends like one while a command runs: with 130, without a traceback.
    """
    try:
        from reput.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
