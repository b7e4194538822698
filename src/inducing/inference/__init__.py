"""What a trained model says: predictions, q(f), and functions drawn from it."""

from inducing.inference.predict import JointPredictive as JointPredictive
from inducing.inference.predict import Posterior as Posterior
from inducing.inference.predict import draw as draw
from inducing.inference.predict import posterior as posterior
from inducing.inference.predict import predict as predict
