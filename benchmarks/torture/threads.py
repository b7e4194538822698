"""Predictions from several threads: the numbers of one thread, and BLAS left as it was."""

import threading
from typing import Any

WORKERS = 4


def blas() -> list[int]:
    """The number of threads of each BLAS that is loaded."""
    import threadpoolctl

    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def main(count: int) -> dict[str, int]:
    """Predict `count` times, from four threads at once.

    Args:
        count: the number of predictions.

    Returns:
        The numbers of predictions, of errors, of results that differ from those of one thread, and of BLAS libraries
        whose number of threads was changed.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np

    import inducing as ig

    x = np.linspace(0.0, 1.0, 300)[:, None]
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::20]))
    model = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), (x, np.sin(6.0 * x)), progress=False).model
    sizes = [3, 50, 128, 300]
    expected = [np.asarray(model.predict(x[:n]).mean) for n in sizes]
    before, errors, wrong = blas(), [], []

    def work(worker: int) -> None:
        for i in range(count // WORKERS):
            which = (worker + i) % len(sizes)
            try:
                got: Any = np.asarray(model.predict(x[: sizes[which]]).mean)
            except Exception as error:
                errors.append(error)
                continue
            if not np.array_equal(got, expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changed = sum(a != b for a, b in zip(before, blas(), strict=True))
    found = {"predictions": count // WORKERS * WORKERS, "errors": len(errors), "other numbers": len(wrong)}
    found |= {"BLAS libraries changed": changed}
    print(found, flush=True)
    return found
