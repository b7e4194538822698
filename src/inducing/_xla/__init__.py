"""Everything that exists because of the compiler or the machine.

Compiler options, barriers, layouts of matrix products, batches for LAPACK, and limits of threads. `jit` and
`optimization_barrier` are called in this package only.
"""

from inducing._xla.arrays import own_array as own_array
from inducing._xla.barriers import apart as apart
from inducing._xla.barriers import barrier as barrier
from inducing._xla.blocks import in_blocks as in_blocks
from inducing._xla.compile import compiled as compiled
from inducing._xla.compile import default_jit as default_jit
from inducing._xla.compile import jit as jit
from inducing._xla.compile import static_jit as static_jit
from inducing._xla.memory import check_memory as check_memory
from inducing._xla.threads import limited_threads as limited_threads
