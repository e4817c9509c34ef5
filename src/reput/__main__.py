"""`python -m reput`: the same as the command `reput`."""

from reput.cli.main import main

if __name__ == "__main__":
    main()
