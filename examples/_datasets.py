"""The data sets of the examples, read from the folder INDUCING_DATA, or made up if a file is missing.

The made-up data have the same shapes, so every example runs on any machine. They resemble the real data only roughly:
figures and scores are meaningful only with the real data.
"""

import os
from pathlib import Path

import numpy as np


def load(name: str) -> dict[str, np.ndarray]:
    """Load a data set by name, such as "power"; `examples/README.md` lists the arrays of each.

    Args:
        name: the file's name without its ending.

    Returns:
        The arrays by name, from the file if it exists, otherwise made up.
    """
    folder = os.environ.get("INDUCING_DATA", Path(__file__).resolve().parents[1] / "../shared/data")
    path = Path(folder) / f"{name}.npz"
    if path.exists():
        with np.load(path) as file:
            return dict(file)
    print(f"{path} does not exist: running on made-up data of the same shape. Set INDUCING_DATA to use the real data.")
    return MADE_UP[name](np.random.default_rng(0))


def _power(rng):
    temperature = rng.uniform(2.0, 37.0, 9568)
    vacuum = 30.0 + 1.2 * temperature + 6.0 * rng.normal(size=9568)
    pressure, humidity = rng.normal(1013.0, 6.0, 9568), rng.uniform(26.0, 100.0, 9568)
    X = np.stack([temperature, vacuum, pressure, humidity], axis=1)
    Y = 495.0 - 1.6 * temperature - 0.25 * vacuum - 0.1 * humidity + 4.0 * rng.normal(size=9568)
    return {"X": X, "Y": Y[:, None], "X_bb": X, "Y_bb": Y[:, None], "pbp_test_mask": rng.random((9568, 1)) < 0.1}


def _kin8nm(rng):
    X = rng.uniform(-np.pi / 2, np.pi / 2, (8192, 8))
    Y = 0.7 + 0.3 * np.sin(X[:, 0] + X[:, 1]) * np.cos(X[:, 2]) + 0.05 * rng.normal(size=8192)
    return {"X": X, "Y": Y[:, None], "pbp_test_mask": rng.random((8192, 1)) < 0.1}


def _mauna_loa_co2(rng):
    year = 1958.2 + np.arange(764) / 12.0
    age = year - 1958.0
    co2 = 314.0 + 0.8 * age + 0.013 * age**2 + 3.0 * np.sin(2.0 * np.pi * year) + 0.3 * rng.normal(size=764)
    return {"X": year[:, None], "Y": co2[:, None]}


def _mcycle(rng):
    time = np.sort(rng.uniform(2.4, 57.6, 133))
    shock = -110.0 * np.exp(-0.5 * ((time - 21.0) / 4.0) ** 2) + 40.0 * np.exp(-0.5 * ((time - 32.0) / 4.0) ** 2)
    noise = np.where(time < 14.0, 2.0, 20.0) * rng.normal(size=133)
    return {"X": time[:, None], "Y": (shock + noise)[:, None]}


def _fx2007(rng):
    shared = np.cumsum(rng.normal(size=(251, 3)), axis=0) @ rng.normal(size=(3, 13))
    rates = np.exp(rng.normal(size=13) + 0.004 * shared + 0.002 * np.cumsum(rng.normal(size=(251, 13)), axis=0))
    rates[rng.random((251, 13)) < 0.02] = np.nan
    return {"X": np.arange(251.0)[:, None], "Y": rates}


def _jura(rng):
    X = rng.uniform(0.6, 5.0, (359, 2))
    latent = np.stack([np.sin(2.0 * X[:, 0]), np.cos(1.5 * X[:, 1]), np.sin(X.sum(axis=1))], axis=1)
    Y = np.exp(0.4 * (latent @ rng.normal(size=(3, 7)) + 0.5 * rng.normal(size=(359, 7))))
    return {"X_train": X[:259], "Y_train": Y[:259], "X_test": X[259:], "Y_test": Y[259:]}


def _mnist_small(rng):
    """Ten blurred shapes, each moved by up to three pixels."""
    row, column = np.mgrid[:28, :28]
    shapes = [
        np.exp(-0.5 * ((np.hypot(row - 14, column - 14) - 2.0 - c % 5 * 1.5) / 1.5) ** 2) * ((row < 14) | (c < 5))
        for c in range(10)
    ]
    labels = rng.integers(0, 10, 6000)
    moves = rng.integers(-3, 4, (6000, 2))
    images = [np.roll(shapes[c], tuple(move), axis=(0, 1)) for c, move in zip(labels, moves, strict=True)]
    X = np.clip(255.0 * np.stack(images) + 20.0 * rng.normal(size=(6000, 28, 28)), 0, 255).astype(np.uint8)
    X, Y = X.reshape(6000, 784), labels.astype(np.uint8)
    return {"X_train": X[:5000], "Y_train": Y[:5000], "X_test": X[5000:], "Y_test": Y[5000:]}


def _oil_flow(rng):
    phase = rng.integers(0, 3, 1000)
    latent = rng.normal(size=(1000, 2)) * 0.4 + np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])[phase]
    Y = np.tanh(latent @ rng.normal(size=(2, 12))) + 0.05 * rng.normal(size=(1000, 12))
    return {"Y_trn": Y, "labels_trn": np.eye(3)[phase]}


MADE_UP = {
    "power": _power,
    "kin8nm": _kin8nm,
    "mauna_loa_co2": _mauna_loa_co2,
    "mcycle": _mcycle,
    "fx2007": _fx2007,
    "jura": _jura,
    "mnist_small": _mnist_small,
    "oil_flow": _oil_flow,
}
