"""The command line: `python -m inducing demo`."""

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; without arguments, say which there are."""
    parser = argparse.ArgumentParser(prog="inducing", description="Sparse variational Gaussian processes.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="compare four models on the letters DGP: a table and a figure")
    demo.add_argument("--out", default="out", help="folder for the figure (default: out)")
    demo.add_argument("--seed", type=int, default=0, help="seed of data split and training (default: 0)")
    demo.add_argument("--silent", action="store_true", help="no progress bars")
    effort = demo.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_const", const="quick", dest="kind", help="under two minutes")
    effort.add_argument(
        "--full", action="store_const", const="full", dest="kind", help="about an hour, the paper's quality"
    )
    demo.set_defaults(kind="default")
    options = parser.parse_args(arguments)

    import jax

    jax.config.update("jax_enable_x64", True)
    from . import demo as four_models

    four_models.run(options.kind, options.out, options.seed, progress=not options.silent)


if __name__ == "__main__":
    main()
