"""`python -m fetchbox`, and the command `fetchbox`."""

from cli.main import main

if __name__ == "__main__":
    main()
