"""``python -m merope`` and ``torchrun -m merope``: the command line."""

from merope.cli.main import main

if __name__ == "__main__":
    main()
