"""The interface of priors: linear maps of independent latent GPs (section 2.4)."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, own_array
from inducing.data import some_rows
from inducing.kernels.base import AbstractKernel
from inducing.linalg import AbstractCovariance
from inducing.parameters import FAR, Module, Start, dtype_of, question
from inducing.priors.latents import repeat

if TYPE_CHECKING:
    from inducing.means import AbstractMean
    from inducing.priors.exact import ExactGP


class AbstractPrior(Module):
    """A Gaussian process f: ℝᴰ → ℝᴾ that is a linear map of L independent latent processes g_l.

        f_p(x) = μ_p(x) + Σ_l W[p, l] s_l[p mod J](x),      s_l(x) = (T g_l)(x) ∈ ℝᴶ

    The J *sites* of a latent are the functionals of it that outputs depend on: its value at x (J = 1), its partial
    derivatives (J = D), or one functional for each output (J = P), such as a smoothed value or the value at a patch. J
    divides P. W is `mixing`, or None in two simple cases. If P = L·J, the outputs l·J, …, l·J + J − 1 are the sites of
    latent l and depend on no other latent; for J = 1 that is the identity. Otherwise all entries of W are 1.

    The inducing variables are features of the latents, u_l = features.apply(g_l). Conditioning therefore happens for
    each latent in O(M³), and the linear map is applied afterwards.

    Arrays of the latents have a leading axis K, which is L, or 1 if all latents share kernel and features. Kuu and Kuf
    must agree on it. The page "Extend" of the documentation shows how to write a prior.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> prior = ig.priors.Derivative(ig.GP(ig.kernels.Matern52()), dim=2)      # one latent, two slopes
        >>> prior.num_latents, prior.num_outputs, prior.num_sites
        (1, 2, 2)
        >>> X, features = jnp.zeros((5, 2)), ig.features.InducingPoints(jnp.ones((3, 2)))
        >>> prior.Kuf(features, X).shape, prior.covariance(X).shape
        ((1, 3, 5, 2), (10, 10))
    """

    _such_as = "a prior, such as ig.GP(kernel)"

    @property
    @abc.abstractmethod
    def num_latents(self) -> int:
        """The number L of latents."""

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """The number P of outputs."""

    @property
    @abc.abstractmethod
    def num_sites(self) -> int:
        """The number J of sites of each latent, a divisor of P."""

    @property
    @abc.abstractmethod
    def mixing(self) -> Float[Array, "P L"] | None:
        """W [P, L], or None for the identity or ones, as in the description of the class."""

    @property
    @abc.abstractmethod
    def kernels(self) -> tuple[AbstractKernel, ...]:
        """The kernels of the latents: L of them, or one that all latents share."""

    @property
    @abc.abstractmethod
    def smoothness(self) -> int | float:
        """How many derivatives every output has in mean square (`math.inf` for all of them)."""

    @abc.abstractmethod
    def input_columns(self, latent: int) -> int:
        """Return the number D of columns of x if the inputs of the latents have `latent` columns."""

    @abc.abstractmethod
    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """Compute the prior mean μ(X) of the outputs [N, P]."""

    @abc.abstractmethod
    def mu_u(self, features: Any) -> Float[Array, "L M"]:
        """Compute the prior mean of u [L, M], which are the features of the latents' means."""

    @abc.abstractmethod
    def Kuu(self, features: Any, jitter: float) -> AbstractCovariance:
        """Compute Cov(u_l, u_l), stacked along a leading axis K.

        Args:
            features: one of `ig.features` for all latents, or a tuple with one for each.
            jitter: what a dense covariance adds to its diagonal, relative to it.
        """

    @abc.abstractmethod
    def Kuf(self, features: Any, X: Float[Array, "N D"]) -> Float[Array, "K M N J"]:
        """Compute Cov(u_l, s_l(X)) [K, M, N, J]."""

    @abc.abstractmethod
    def Kff(self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None = None) -> Float[Array, "K N J N2 J"]:
        """Compute Cov(s_l(X), s_l(X2)) [K, N, J, N2, J]; without X2, that of X with itself."""

    @abc.abstractmethod
    def Kff_diag(self, X: Float[Array, "N D"]) -> Float[Array, "K N J"]:
        """Compute Var(s_l(X)) [K, N, J]."""

    @abc.abstractmethod
    def draw_latents(self, key: Array, num: int, dim: int) -> tuple[Callable, Callable]:
        """Draw the latents, with mean zero, from random features.

        Args:
            key: a random key.
            num: the number of random features of each latent, where it has infinitely many.
            dim: the number D of columns of x.

        Returns:
            Two functions that belong to the same draw: the latents g: [n, D'] → [n, L], whose features are u, and
            their sites: [n, D] → [n, L, J].
        """

    @question
    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        """Whether every output has a partial derivative in mean square.

        By default, if `smoothness` is at least the number of columns.

        Args:
            columns: the column of x of each differentiation: (0,) stands for ∂f/∂x_0, and (0, 0, 1) for ∂³f/∂x_0²∂x_1.
            dim: the number D of columns of x, if it is known.
        """
        return len(columns) <= self.smoothness

    @question
    def differentiated(self, derivatives: tuple[tuple[int, ...], ...], dim: int) -> "AbstractPrior | None":
        """The prior of derivatives, if there is a better way to compute it than to differentiate covariances.

        Args:
            derivatives: the columns of x of each derivative, as in `has_derivative`; () stands for the value.
            dim: the number D of columns of x.

        Returns:
            A prior with the same latents. Its sites and outputs are the derivatives of the first site or output, then
            those of the second, and so on. Its mean does not matter. None (the default) if there is no better way.
        """
        return None

    @property
    @question
    def shared_kernel(self) -> AbstractKernel | None:
        """The kernel k, if the outputs are the latents themselves, which all have the kernel k; else None."""
        return None

    @property
    @question
    def indexes_outputs(self) -> bool:
        """Whether the last column of the inputs is the number of an output."""
        return False

    @property
    @question
    def group_size(self) -> int:
        """The number of consecutive outputs that are functionals of one function.

        Labels of one output of a group are enough to train on; by default each output needs some.
        """
        return 1

    @question
    def mean_functions(self) -> "tuple[tuple[int | None, AbstractMean], ...]":
        """The mean functions, each with the number of the latent that it belongs to, or None for all outputs.

        `fit` starts those of all outputs at the centre of the labels, and chooses the unit in which each moves.
        """
        return ()

    @question
    def latent_inputs(self, X: Array | np.ndarray) -> np.ndarray:
        """The points at which the latents are evaluated for given inputs, as concrete numbers.

        Override it if the latents are evaluated elsewhere than at X. If there are many points for each input, such as
        the patches of an image, those of a few hundred inputs are enough: they set lengthscales and check values.

        Args:
            X: concrete inputs [N, D].

        Returns:
            Points [n, D'], D' being the number of input columns of the latents. By default X itself.
        """
        return np.asarray(X, float)

    @question
    def latent_variances(self, X: Float[Array, "N D"]) -> Float[Array, "K N J"]:
        """The prior variances of the latents' sites at X, for all outputs alike.

        This is `Kff_diag`, unless a row of X shows only what one output sees of the latents.
        """
        return self.Kff_diag(X)

    @question
    def check_inputs(self, X: Array | np.ndarray) -> None:
        """Raise a ValueError if the prior cannot take some value in X [N, D], such as an unknown category.

        By default the kernels judge `latent_inputs(X)`. Values under `jit` cannot be checked and pass.
        """
        if isinstance(X, jax.core.Tracer):
            return
        rows = self.latent_inputs(X)
        if self.input_columns(rows.shape[1]) == X.shape[1]:  # wrong widths are refused elsewhere
            for kernel in self.kernels:
                kernel.check_inputs(rows)

    @question
    def start(self, likelihood: Any, x: Array | np.ndarray, y: np.ndarray) -> list[Start]:
        """Starting values of the likelihood's own parameters, constant means and amplitudes.

        Args:
            likelihood: the likelihood of the labels, whose `start(y)` says what they tell about the outputs.
            x: inputs of the prior [n, D]. If there are as many rows as in y, they belong to those labels; otherwise
                they are only typical inputs, as above other layers.
            y: labels [N, P], NaN where missing.

        Returns:
            The starting values: means at the centre of the outputs (`start_means`), and amplitudes that give the
            prior the variance of the outputs (`start_amplitudes`).
        """
        latent = likelihood.start(y)
        return latent.own + self.start_means(latent.centre) + self.start_amplitudes(x, latent.variance)

    @question
    def start_means(self, centre: np.ndarray) -> list[Start]:
        """Starting values of the means for outputs around `centre` [P], which is NaN where unknown.

        By default the mean functions of all outputs are set, and those of single latents keep their values.
        """
        return [t for latent, mean in self.mean_functions() if latent is None for t in mean.start(centre)]

    @question
    def start_amplitudes(self, x: Array | np.ndarray, variance: np.ndarray) -> list[Start]:
        """Starting values of the kernels' amplitudes.

        By default all kernels are multiplied by one factor, so that the prior variance at x, averaged over the
        outputs, is that of the outputs. Nothing is set where a variance is unknown.

        Args:
            x: inputs [n, D], of which a few hundred are used.
            variance: the variance [P] of each output, NaN where unknown.
        """
        present = prior_variances(self, x).mean()
        return [t for kernel in self.kernels for t in scaled_kernel(kernel, present, variance.mean())]

    def covariance(self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None = None) -> Float[Array, "NP N2P"]:
        """Compute the prior covariance of the outputs, flattened datum by datum.

        Args:
            X: inputs [N, D].
            X2: inputs [N2, D]; X itself if None.

        Returns:
            Cov(f(X), f(X2)) [N·P, N2·P].

        Examples:
            >>> import jax.numpy as jnp, inducing as ig
            >>> ig.GP(ig.kernels.Matern52(variance=2.0)).covariance(jnp.zeros((1, 3))).tolist()
            [[2.0]]
        """
        K = mix_covariance(self, self.Kff(X, X2))
        N, P, N2, _ = K.shape
        return K.reshape(N * P, N2 * P)

    def sample(self, key: Array, X: Any, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Values of f at given inputs, joint over the inputs and outputs, in O(L (N J)³).

        Args:
            key: a random key.
            X: inputs [N, D], or [N] for D = 1.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, N, P].

        Raises:
            ValueError: if the prior cannot take X.

        Examples:
            >>> import jax, inducing as ig
            >>> prior = ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52(), mean=3.0)
            >>> f = prior.sample(jax.random.key(0), [0.0, 0.5, 1.0], (10,))
            >>> f.shape, bool(abs(f[..., 1] - 3.0 - 2.0 * (f[..., 0] - 3.0)).max() < 1e-10)
            ((10, 3, 2), True)
        """
        from inducing.priors.sampling import sample_prior  # which imports this module

        return sample_prior(self, key, X, shape)

    def draw(self, key: Array, num_features: int = 1024) -> Callable[[Any], Float[Array, "N P"]]:
        """One function of the prior.

        It is a weighted sum of random features of the kernels, whose mean and covariance over keys are those of the
        prior. It can be evaluated at any number of inputs, while `sample` factorises their covariance.

        Args:
            key: a random key. The same key gives the same function.
            num_features: the number of random features of each kernel that has infinitely many.

        Returns:
            A function f of inputs X [N, D] with values [N, P]. It is the same function at every call.

        Raises:
            TypeError: when f is called, if a kernel has no random features. Use `sample` instead.

        Examples:
            >>> import jax, inducing as ig
            >>> f = ig.GP(ig.kernels.Matern52()).draw(jax.random.key(0))
            >>> f([0.0, 0.5]).shape, bool(abs(f([0.0, 0.5])[1, 0] - f([0.5])[0, 0]) < 1e-12)
            ((2, 1), True)
        """
        from inducing.priors.sampling import draw_prior  # which imports this module

        return draw_prior(self, key, num_features)

    def condition(self, X: Any, y: Any, noise_variance: Any) -> "ExactGP":
        """Condition the prior on labels y = f(X) + ε with Gaussian noise, exactly and in O((N P)³).

        Args:
            X: inputs [N, D], or [N] for D = 1.
            y: labels [N, P], or [N] for P = 1; NaN where missing.
            noise_variance: the variance of ε, one number, or one for each output [P], datum [N] or label [N, P].

        Returns:
            The posterior, an `ig.priors.ExactGP` with `predict`, `sample`, `draw` and `log_prob`.

        Raises:
            ValueError: if the shapes do not fit, or the covariance of the labels is not positive definite.

        Examples:
            >>> import inducing as ig
            >>> exact = ig.GP(ig.kernels.SquaredExponential()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.1)
            >>> exact.predict([0.5]).mean.shape, exact.log_prob([0.5], [1.5]).shape
            ((1, 1), ())
        """
        from inducing.priors.exact import ExactGP  # which imports this module

        return ExactGP(self, X, y, noise_variance)


def prior_variances(prior: AbstractPrior, x: Array | np.ndarray) -> np.ndarray:
    """The prior variance [P] of each output, averaged over at most 256 rows of x."""
    rows = np.asarray(some_rows(x))
    return np.asarray(_prior_variances(prior, own_array(rows, rows.dtype)), float).mean(axis=0)


@default_jit  # one program to compile, not one for each operation
def _prior_variances(prior: AbstractPrior, x: Array) -> Array:
    return mix_variance(prior, prior.Kff_diag(x))


def scaled_kernel(kernel: AbstractKernel, present: float, wanted: float) -> list[Start]:
    """Starting values that multiply a kernel by wanted / present; none if one of them is unknown."""
    if not (np.isfinite(wanted) and np.isfinite(present) and present > 0):
        return []
    factor = wanted / present
    far = bool(factor > FAR**2 or factor < FAR**-2)  # variances are squares of scales
    return [Start(leaf, np.asarray(leaf, float) * factor**power, far) for leaf, power in kernel.amplitude()]


def weights(prior: AbstractPrior) -> Float[Array, "P L"] | None:
    """W, with ones where they are implied; None if the outputs are the sites of the latents."""
    W, P, L = prior.mixing, prior.num_outputs, prior.num_latents
    if W is None and L * prior.num_sites != P:
        return jnp.ones((P, L), dtype_of(prior))
    return W


def dense_weights(prior: AbstractPrior, dtype: Any) -> Float[Array, "P L"]:
    """W as an array in all cases."""
    W = weights(prior)
    return jnp.repeat(jnp.eye(prior.num_latents, dtype=dtype), prior.num_sites, axis=0) if W is None else W


def by_site(prior: AbstractPrior, W: Float[Array, "P *rest"]) -> Float[Array, "Q J *rest"]:
    """Reshape an array over outputs to one over (q, j), where output q·J + j depends on site j."""
    return W.reshape(-1, prior.num_sites, *W.shape[1:])


def mix_mean(prior: AbstractPrior, s: Float[Array, "*B L J"]) -> Float[Array, "*B P"]:
    """Outputs from sites: Σ_l W[p, l] s_l[p mod J]."""
    W = weights(prior)
    if W is None:
        return s.reshape(*s.shape[:-2], -1)
    if prior.num_sites == 1:
        return s[..., 0] @ W.T
    return jnp.einsum("qjl,...lj->...qj", by_site(prior, W), s).reshape(*s.shape[:-2], -1)


def mix_variance(prior: AbstractPrior, v: Float[Array, "K N J"]) -> Float[Array, "N P"]:
    """Output variances from those of uncorrelated latents: Σ_l W[p, l]² v_l[p mod J]."""
    W, v = weights(prior), repeat(v, prior.num_latents)
    if W is None:
        return jnp.swapaxes(v, 0, 1).reshape(v.shape[1], -1)
    if prior.num_sites == 1:
        return v[..., 0].T @ (W**2).T
    return jnp.einsum("qjl,lnj->nqj", by_site(prior, W**2), v).reshape(v.shape[1], -1)


def mix_covariance(prior: AbstractPrior, K: Float[Array, "K N J N2 J"]) -> Float[Array, "N P N2 P"]:
    """Output covariances from those of uncorrelated latents: Σ_l W[p, l] W[q, l] K_l[·, p mod J, ·, q mod J]."""
    W, K = by_site(prior, dense_weights(prior, K.dtype)), repeat(K, prior.num_latents)
    C = jnp.einsum("ajl,lnjmk,bkl->najmbk", W, K, W)
    return C.reshape(K.shape[1], prior.num_outputs, K.shape[3], prior.num_outputs)


def mix_coupled_variance(prior: AbstractPrior, C: Float[Array, "N J L L"]) -> Float[Array, "N P"]:
    """Output variances from the covariance of correlated latents: Σ_lk W[p, l] W[p, k] C[p mod J, l, k]."""
    W, N, L = weights(prior), C.shape[0], prior.num_latents
    if W is None:
        return jnp.swapaxes(jnp.diagonal(C, axis1=2, axis2=3), 1, 2).reshape(N, -1)
    squares = by_site(prior, (W[:, :, None] * W[:, None, :]).reshape(-1, L * L))
    return jnp.einsum("qjc,njc->nqj", squares, C.reshape(N, -1, L * L)).reshape(N, -1)


def mix_coupled_covariance(prior: AbstractPrior, C: Float[Array, "L N J L N J"]) -> Float[Array, "N P N P"]:
    """Output covariances from those of correlated latents: Σ_lk W[p, l] W[q, k] C[l, ·, p mod J, k, ·, q mod J]."""
    W = by_site(prior, dense_weights(prior, C.dtype))
    out = jnp.einsum("ajl,lnjkmi,bik->najmbi", W, C, W)
    return out.reshape(C.shape[1], prior.num_outputs, C.shape[4], prior.num_outputs)
