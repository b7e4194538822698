"""What a layer is: an approximate posterior over a random function, or over a latent variable of each datum."""

import abc
from typing import Any

from jaxtyping import Array, Float

from ..data import Data
from ..parameters import Module


class AbstractLayer(Module):
    """One storey of a model. Inputs and outputs are [N, R, width]: R replicates of each of N data.

    `propagate` samples the layer's output; a random *function* is drawn jointly over the replicates of a datum
    and independently over data. `moments` integrates it instead, which the last layer of a model does.
    """

    @abc.abstractmethod
    def propagate(
        self, x: Float[Array, "N R D"], key: Array, data: Data, replicates: int
    ) -> tuple[Float[Array, "N R2 D2"], Float[Array, "N R2"]]:
        """A sample of the output and the log-weight log p(h)/q(h) of what was sampled per datum (0 for functions)."""

    @abc.abstractmethod
    def cache(self) -> Any:
        """What `moments` needs and does not depend on the inputs, computed once (None where there is nothing)."""

    @abc.abstractmethod
    def moments(
        self, x: Float[Array, "N R D"], correlated: bool = False, cache: Any = None
    ) -> tuple[Float[Array, "N R P"], Float[Array, "N R P"] | Float[Array, "N R P P"]]:
        """Mean and variance of the outputs at each input; `correlated` asks for their P × P covariance."""

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q ‖ p) of the layer's random function (0 for a latent variable, whose KL is in the log-weight)."""
