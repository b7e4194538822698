"""What a trained model says: predictions, q(f), and functions drawn from q(f)."""

from inducing.inference.draw import draw as draw
from inducing.inference.joint import Estimate as Estimate
from inducing.inference.joint import JointPredictive as JointPredictive
from inducing.inference.posterior import Posterior as Posterior
from inducing.inference.posterior import posterior as posterior
from inducing.inference.predict import predict as predict
from inducing.inference.predict import reconstruct as reconstruct
