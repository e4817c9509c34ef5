"""The entry point of the command `reput`, and of `python -m reput`."""

from reput.cli import interrupts


def main() -> None:
    """Import the commands, then run one; the process ends with its status.

    An interrupt while they are imported, or made, ends like one while a command runs: with 130, without a traceback.
    """
    try:
        try:
            interrupts.take()
            from reput.cli.main import main as run

            run()
        finally:
            interrupts.ignore()
    except KeyboardInterrupt:
        interrupts.end()
    except Exception:
        if interrupts.is_interrupted():  # an import that swallows the interrupt fails otherwise
            interrupts.end()
        raise


if __name__ == "__main__":
    main()
