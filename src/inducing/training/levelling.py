"""A criterion for stopping: whether the bound has levelled off."""

import numpy as np

GAIN = 2e-4  # nats for each datum
SURELY = 2e-3  # the same for a noisy bound, whose gain is known with an error


def has_levelled(bounds: np.ndarray, num_data: int, fewest: int, noisy: bool, gain: float = GAIN) -> bool:
    """Whether a bound has levelled off, in nats for each datum, so that the units of the data do not matter.

    A bound without noise has levelled off if the last quarter of the steps (at least `fewest`) raised its maximum by
    less than `gain`, 2e-4 nats per datum. For a noisy bound, the last half of the steps (at least 1000) is split in
    two. It has levelled off if the mean of the second part exceeds that of the first by less than 2e-3 nats per datum,
    even after twice the standard error of the difference is added.

    Args:
        bounds: the objective before each step.
        num_data: the number of data.
        fewest: the fewest steps that decide, where the bound has no noise.
        noisy: whether the bound is noisy.
        gain: the gain of a bound without noise, in nats for each datum, that is too little to go on for.

    Examples:
        >>> rising = -1000.0 * 0.98 ** np.arange(2000.0)
        >>> has_levelled(rising[:300], 1000, 100, False), has_levelled(rising[:1000], 1000, 100, False)
        (False, True)
    """
    last = max(1000, len(bounds) // 2) if noisy else max(fewest, len(bounds) // 4)
    bounds = np.where(np.isfinite(bounds), bounds, np.nan)
    if noisy and len(bounds) >= last:
        halves = [half[~np.isnan(half)] for half in np.array_split(bounds[-last:], 2)]
        if min(map(len, halves)) < 100:
            return False
        error = np.sqrt(sum(half.var() / len(half) for half in halves))
        return bool(halves[1].mean() - halves[0].mean() + 2.0 * error < SURELY * num_data)
    if noisy or len(bounds) < last + fewest or np.isnan(bounds[:-last]).all():
        return False
    return bool(np.nanmax(bounds) - np.nanmax(bounds[:-last]) < gain * num_data)
