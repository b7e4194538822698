"""float32: columns of any offset and spread, and fits of labels in any unit."""

import warnings

FITS = 0.01  # the share of fits among what is tried: a fit takes as long as many columns


def main(count: int) -> dict[str, int]:
    """Cast `count` random columns to float32, and fit labels in units from 1e-12 to 1e12.

    A column is lost silently if different numbers became equal, without an error or a warning, although float32 tells
    fewer than 2²⁰ numbers apart between the smallest and the largest: the rule of docs/reliability.md.

    Args:
        count: the number of columns. A hundredth of it is the number of fits.

    Returns:
        How many columns were refused, warned of, kept and lost silently; how many fits there were, and how many failed
        or were off by more than twice the noise.
    """
    import numpy as np

    import inducing as ig

    rng = np.random.default_rng(0)
    found = dict.fromkeys(("refused", "warned of", "kept", "lost silently", "fits", "bad fits"), 0)
    for _ in range(count):
        spread, offset = 10.0 ** rng.uniform(-30.0, 12.0), 0.0
        if rng.uniform() < 0.8:
            offset = spread * 10.0 ** rng.uniform(-1.0, 10.0)
        x = offset + spread * np.sort(rng.uniform(size=int(10 ** rng.uniform(1.0, 4.0))))
        cast = x.astype(np.float32)
        coarse = np.ptp(x) < 2**20 * np.finfo(np.float32).eps * np.abs(x).max()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                ig.Data(x)
            except ValueError:
                found["refused"] += 1
                continue
        lost = coarse and len(np.unique(cast)) < len(np.unique(x))
        found["warned of" if said else "lost silently" if lost else "kept"] += 1
    x = np.linspace(0.0, 1.0, 60)
    f = np.sin(6.0 * x)
    for i in range(round(FITS * count)):
        unit, method = 10.0 ** rng.uniform(-12.0, 12.0), ("collapsed", "natgrad")[i % 2]
        y = unit * (f + 0.05 * rng.normal(size=60))
        gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(x[::6, None]))
        found["fits"] += 1
        try:
            model = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), (x, y), method=method, progress=False).model
            error = np.sqrt(np.mean((np.asarray(model.predict(x).mean, float)[:, 0] / unit - f) ** 2))
        except FloatingPointError:
            error = np.inf
        found["bad fits"] += bool(not error < 0.1)
    print(found, flush=True)
    return found
