"""``python -m majorant`` is the command line."""

from majorant.cli.main import main

if __name__ == "__main__":
    main()
