"""GPflux's side: deep Gaussian processes, trained by Keras as its documentation does, and step by step."""

import time
from unittest import mock

import gpflow
import gpflux
import numpy as np
import tensorflow as tf
import tf_keras
from protocol import Timed, serve
from with_gpflow import configure, kernel_of, stepped


def build(case: dict, a: dict) -> Timed:
    """The work of a case; only deep ones."""
    configure(case)
    tf_keras.backend.set_floatx(case["dtype"])
    N, last = len(a["X"]), case["layers"] - 1
    layers = []
    for i in range(case["layers"]):
        width = 1 if i == last else case["width"]
        if i == last:
            mean = gpflow.mean_functions.Zero()
        elif i == 0:
            mean = gpflow.mean_functions.Linear(a["project"], np.zeros((), case["dtype"]))
            gpflow.set_trainable(mean, False)
        else:
            mean = gpflow.mean_functions.Identity()
        layer = gpflux.layers.GPLayer(
            gpflow.kernels.SharedIndependent(kernel_of(a, a[f"lengthscale{i}"]), output_dim=width),
            gpflow.inducing_variables.SharedIndependentInducingVariables(
                gpflow.inducing_variables.InducingPoints(a[f"Z{i}"])
            ),
            num_data=N,
            mean_function=mean,
            num_latent_gps=width,
            whiten=True,
        )
        layer.q_mu.assign(a[f"mean{i}"].T)
        layer.q_sqrt.assign(a[f"root{i}"])
        layers.append(layer)
    likelihood = gpflux.layers.LikelihoodLayer(gpflow.likelihoods.Gaussian(a["noise"]))
    model = gpflux.models.DeepGP(layers, likelihood, input_dim=case["D"], target_dim=1, num_data=N)
    variables = [v for layer in (*layers, likelihood) for v in layer.trainable_variables]
    X, y = tf.constant(a["X"]), tf.constant(a["y"])
    bound, tuned = stepped(model.elbo, variables, X, y, a["index"])
    return Timed(lambda: _with_unit_noise(bound), _drawn(model, a, case["batch"]), tuned=tuned)


def _drawn(model, a: dict, batch: int):
    """Adam steps of Keras' `fit`, by the clock from the first epoch's beginning to the last one's end."""
    training = model.as_training_model()
    training.compile(tf.optimizers.Adam(1e-3))
    steps = -(-len(a["X"]) // batch)

    def run(n):
        clock = []
        epochs = max(1, round(n / steps))
        tick = tf_keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda *_: clock.append(time.perf_counter()),
            on_epoch_end=lambda *_: clock.append(time.perf_counter()),
        )
        training.fit(
            {"inputs": a["X"], "targets": a["y"]}, batch_size=batch, epochs=epochs, verbose=0, callbacks=[tick]
        )
        return (clock[-1] - clock[0]) / (epochs * steps)

    return run


def _with_unit_noise(value):
    """The bound with every standard normal draw replaced by one, so that it can be compared."""
    from tensorflow_probability.python.internal import samplers

    def ones(shape, dtype=tf.float32, **_):
        return tf.ones(shape, dtype)

    with mock.patch.object(samplers, "normal", ones):
        return value()


def versions() -> dict:
    """What the numbers belong to."""
    from importlib.metadata import version

    return {"gpflux": version("gpflux"), "gpflow": gpflow.__version__, "tensorflow": tf.__version__}


if __name__ == "__main__":
    serve(build, {"versions": versions})
