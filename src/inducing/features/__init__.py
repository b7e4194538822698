"""Inducing features: the linear functionals that define u."""

from .base import AbstractFeatures as AbstractFeatures
from .base import general_Kuf as general_Kuf
from .base import general_Kuu as general_Kuu
from .points import InducingPoints as InducingPoints
