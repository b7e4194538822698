"""`python -m inducing`: the command line."""

from inducing.cli.main import main

if __name__ == "__main__":
    main()
