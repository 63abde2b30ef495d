"""``python -m steptp``."""

from steptp.cli import main

if __name__ == "__main__":
    main()
