"""`python -m headrace` is the command `headrace`."""

from headrace.sidecar.cli.app import main

if __name__ == "__main__":
    main()
