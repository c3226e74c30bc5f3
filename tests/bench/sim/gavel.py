# SPDX-License-Identifier: Apache-2.0
"""gavel.py CHECKOUT [ARGUMENT...]

Runs scripts/drivers/simulate_scheduler_with_trace.py of a checkout of Gavel
(stanford-futuredata/gavel) as it is. Simulations use neither its RPC modules
nor its matrix completion, which only estimates throughputs that are unknown:
empty modules stand in for them, so that no stubs need be generated. Its log,
some lines for each job and round, is off.
"""
import logging
import os
import runpy
import sys
import types

scheduler = os.path.join(os.path.realpath(sys.argv[1]), "scheduler")
rpc = types.ModuleType("runtime.rpc")
for name in ("runtime.rpc.scheduler_server", "runtime.rpc.scheduler_client", "matrix_completion"):
    sys.modules[name] = types.ModuleType(name)
    setattr(rpc, name.rpartition(".")[2], sys.modules[name])
sys.modules["runtime.rpc"] = rpc

logging.disable(logging.CRITICAL)
os.chdir(scheduler)
driver = os.path.join("scripts", "drivers", "simulate_scheduler_with_trace.py")
sys.argv = [driver] + sys.argv[2:]
sys.path.insert(0, scheduler)
runpy.run_path(driver, run_name="__main__")
