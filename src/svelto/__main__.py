"""`python -m svelto` is the command line, and runs scripts with scikit-learn patched."""

from svelto.run_script import main

if __name__ == "__main__":
    main()
