"""Everything that exists because of the compiler or the machine.

Compiler options, barriers, layouts of matrix products, batches for LAPACK, limits of threads, and several devices.
`jit` and `optimization_barrier` are called in this package only.
"""

from inducing._xla.arrays import own_array as own_array
from inducing._xla.arrays import take_rows as take_rows
from inducing._xla.barriers import apart as apart
from inducing._xla.barriers import barrier as barrier
from inducing._xla.blocks import in_blocks as in_blocks
from inducing._xla.compile import compiled as compiled
from inducing._xla.compile import default_jit as default_jit
from inducing._xla.compile import jit as jit
from inducing._xla.compile import static_jit as static_jit
from inducing._xla.devices import copied as copied
from inducing._xla.devices import key_of_device as key_of_device
from inducing._xla.devices import local as local
from inducing._xla.devices import mean_over_devices as mean_over_devices
from inducing._xla.devices import num_devices as num_devices
from inducing._xla.devices import on_each_device as on_each_device
from inducing._xla.devices import process as process
from inducing._xla.devices import spread as spread
from inducing._xla.devices import sum_over_devices as sum_over_devices
from inducing._xla.memory import check_memory as check_memory
from inducing._xla.threads import limited_threads as limited_threads
