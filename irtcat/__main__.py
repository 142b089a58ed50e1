"""``python -m irtcat``: the command line."""

from irtcat.cli import main

if __name__ == "__main__":
    main()
