"""Train on the machines of a Ray cluster: Ray starts the processes, and JAX connects them.

    python examples/clusters/on_ray.py 2                    two processes; a local cluster if there is no other

Data: rows that are made up. On a cluster, every process must be able to read the files.
"""

import os
import socket
import sys

import ray

CPUS = float(os.environ.get("INDUCING_CPUS", "1"))  # of each process


@ray.remote(num_cpus=CPUS)
class Process:
    """One process of the training."""

    def address(self) -> str:
        """An address of this machine with a free port."""
        with socket.socket() as found:
            found.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{found.getsockname()[1]}"

    def train(self, address: str, processes: int, number: int) -> list[float]:
        """Fit a model to a stream together with the other processes. All of them return the same."""
        import inducing as ig

        ig.distributed.initialize(address, processes, number)
        import numpy as np

        rng = np.random.default_rng(0)
        X = rng.uniform(0.0, 6.0, (4096, 1))
        stream = ig.Stream((X, np.sin(X) + 0.1 * rng.normal(size=X.shape)))
        gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[:20]))
        model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        result = ig.fit(model, stream, batch_size=256, steps=200, progress=False)
        mean = result.model.predict([[1.0], [2.0], [3.0]]).mean
        return np.asarray(mean)[:, 0].tolist()


def main() -> None:
    """Start the processes, of which number 0 says where the others find it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    ray.init()
    workers = [Process.remote() for _ in range(count)]
    address = ray.get(workers[0].address.remote())
    found = ray.get([worker.train.remote(address, count, i) for i, worker in enumerate(workers)])
    assert all(one == found[0] for one in found)
    print("means at 1, 2 and 3 on every process:", [round(mean, 3) for mean in found[0]])


if __name__ == "__main__":
    main()
