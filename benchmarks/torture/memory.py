"""Memory that stays when models are fitted to more and more rows."""

from pathlib import Path


def resident() -> float:
    """The memory of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main(count: int) -> dict[str, int]:
    """Fit `count` times, each time with more rows, by L-BFGS and then by natural gradients.

    Args:
        count: the number of fits by each of the two.

    Returns:
        The growth in megabytes after the first fit of each kind.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np

    import inducing as ig

    found = {}
    for method in ("collapsed", "natgrad"):
        start = 0.0
        for i in range(count):
            x = np.linspace(0.0, 1.0, 200 + 7 * i)[:, None]
            gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::20][:10]))
            model = ig.Model(gp, ig.likelihoods.Gaussian())
            ig.fit(model, (x, np.sin(6.0 * x)), method=method, steps=10, progress=False)
            if i == 0:
                start = resident()
        found[f"MB more after {count} fits by {method}"] = round(resident() - start)
        print(found, flush=True)
    return found
