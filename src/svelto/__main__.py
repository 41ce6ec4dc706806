"""`python -m svelto` is the command line."""

from svelto.cli import main

if __name__ == "__main__":
    main()
