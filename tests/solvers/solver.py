# SPDX-License-Identifier: Apache-2.0
"""One class per solver: the constructor loads a Model, solve() is what is timed, read() says
(status, cost bound or None, solution or None). Costs are without the model's offset.

Every solver has one thread, gap 0, a time limit, and stops at a cost of `target` or less by its
own means. Status is "target", "optimal", "limit" or the solver's own word.
"""

import importlib.metadata
import math
import multiprocessing
import os
import signal
import time

from model import TOLERANCE

GRACE_S = 15  # past its limit, after which a solver is ended from outside


class Licence(Exception):
    """The licence at hand does not take a model of this size, or there is none."""


class Highs:
    package = "highspy"

    def __init__(self, model, limit_s, target):
        import highspy
        import numpy as np

        self.statuses = {
            highspy.HighsModelStatus.kObjectiveTarget: "target",
            highspy.HighsModelStatus.kOptimal: "optimal",
            highspy.HighsModelStatus.kTimeLimit: "limit",
        }
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(model.cost), len(model.rows)
        lp.col_cost_ = np.array(model.cost, dtype=float)
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.array(model.upper, dtype=float)
        lp.row_lower_ = np.array([lo for lo, _, _ in model.rows], dtype=float)
        lp.row_upper_ = np.array([hi for _, hi, _ in model.rows], dtype=float)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0] + [len(t) for _, _, t in model.rows])
        lp.a_matrix_.index_ = np.array([j for _, _, t in model.rows for j in t], dtype=np.int32)
        lp.a_matrix_.value_ = np.array(
            [a for _, _, t in model.rows for a in t.values()], dtype=float
        )
        self.highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
            ("time_limit", limit_s),
            ("objective_target", target),
        ):
            self.highs.setOptionValue(option, value)
        self.highs.passModel(lp)

    def solve(self):
        self.highs.run()

    def read(self):
        status = self.highs.getModelStatus()
        info = self.highs.getInfo()
        found = math.isfinite(info.objective_function_value) and info.primal_solution_status == 2
        return (
            self.statuses.get(status) or self.highs.modelStatusToString(status),
            info.mip_dual_bound,
            list(self.highs.getSolution().col_value) if found else None,
        )


class Scip:
    package = "pyscipopt"

    def __init__(self, model, limit_s, target):
        import pyscipopt

        self.scip = scip = pyscipopt.Model()
        scip.hideOutput()
        scip.setParams(
            {"limits/time": limit_s, "limits/gap": 0.0, "limits/absgap": 0.0, "lp/threads": 1}
        )
        if math.isfinite(target):
            scip.setParam("limits/primal", target)
        self.x = [
            scip.addVar(vtype="I", lb=0, ub=upper, obj=cost)
            for cost, upper in zip(model.cost, model.upper)
        ]
        for lo, hi, terms in model.rows:
            activity = pyscipopt.quicksum(a * self.x[j] for j, a in terms.items())
            scip.addCons(activity <= hi if lo == -math.inf else activity == hi)

    def solve(self):
        self.scip.optimize()

    def read(self):
        status = self.scip.getStatus()
        found = self.scip.getNSols() > 0
        solution = self.scip.getBestSol() if found else None
        return (
            {"primallimit": "target", "timelimit": "limit"}.get(status, status),
            self.scip.getDualbound(),
            [self.scip.getSolVal(solution, x) for x in self.x] if found else None,
        )


class CpSat:
    """Costs are rounded to SCALE parts; the target is tested on the costs as they are."""

    package = "ortools"
    SCALE = 10**6

    def __init__(self, model, limit_s, target):
        from ortools.sat.python import cp_model

        self.cp = cp_model
        self.cost, self.target = model.cost, target
        self.model = cp_model.CpModel()
        self.x = [self.model.new_int_var(0, upper, "") for upper in model.upper]
        for lo, hi, terms in model.rows:
            scale = 1 if all(a == int(a) for a in terms.values()) else self.SCALE
            row = cp_model.LinearExpr.weighted_sum(
                [self.x[j] for j in terms], [math.floor(a * scale) for a in terms.values()]
            )
            hi = math.floor(hi * scale) if scale == 1 else math.ceil(hi * scale)
            self.model.add(row <= hi if lo == -math.inf else row == hi)
        gains = [round(cost * self.SCALE) for cost in model.cost]
        self.model.minimize(cp_model.LinearExpr.weighted_sum(self.x, gains))
        self.rounding = 0.5 * model.apps / self.SCALE
        self.solver = cp_model.CpSolver()
        parameters = self.solver.parameters
        parameters.num_workers = 1
        parameters.relative_gap_limit = parameters.absolute_gap_limit = 0
        parameters.max_time_in_seconds = limit_s

    def solve(self):
        x, target, stopped = self.x, self.target, []
        priced = [(j, cost) for j, cost in enumerate(self.cost) if cost]

        class Stop(self.cp.CpSolverSolutionCallback):
            def on_solution_callback(self):
                if math.fsum(cost * self.value(x[j]) for j, cost in priced) <= target:
                    stopped.append(True)
                    self.stop_search()

        self.status = self.solver.solve(self.model, Stop())
        self.stopped = bool(stopped)

    def read(self):
        found = self.status in (self.cp.OPTIMAL, self.cp.FEASIBLE)
        status = {self.cp.OPTIMAL: "optimal", self.cp.FEASIBLE: "limit", self.cp.UNKNOWN: "limit"}
        return (
            "target" if self.stopped else status.get(self.status) or self.solver.status_name(),
            self.solver.best_objective_bound / self.SCALE - self.rounding,
            [self.solver.value(x) for x in self.x] if found else None,
        )


class Gurobi:
    package = "gurobipy"

    def __init__(self, model, limit_s, target):
        import gurobipy

        self.gurobi = gurobipy
        try:
            env = gurobipy.Env(params={"OutputFlag": 0, "Threads": 1})
        except gurobipy.GurobiError as err:
            if err.errno == gurobipy.GRB.Error.NO_LICENSE:
                raise Licence(str(err)) from err
            raise
        self.model = gurobipy.Model(env=env)
        self.model.Params.TimeLimit = limit_s
        self.model.Params.MIPGap = self.model.Params.MIPGapAbs = 0
        if math.isfinite(target):
            self.model.Params.BestObjStop = target
        self.x = [
            self.model.addVar(ub=upper, obj=cost, vtype="I")
            for cost, upper in zip(model.cost, model.upper)
        ]
        for lo, hi, terms in model.rows:
            row = gurobipy.LinExpr(list(terms.values()), [self.x[j] for j in terms])
            self.model.addLConstr(row, "<" if lo == -math.inf else "=", hi)

    def solve(self):
        try:
            self.model.optimize()
        except self.gurobi.GurobiError as err:
            if err.errno == self.gurobi.GRB.Error.SIZE_LIMIT_EXCEEDED:
                raise Licence(str(err)) from err
            raise

    def read(self):
        status = {2: "optimal", 9: "limit", 15: "target"}
        return (
            status.get(self.model.Status) or f"status {self.model.Status}",
            self.model.ObjBound,
            [x.X for x in self.x] if self.model.SolCount else None,
        )


SOLVERS = {"highs": Highs, "scip": Scip, "cpsat": CpSat, "gurobi": Gurobi}


def version(solver):
    """The solver's package version, None if it is not installed."""
    try:
        return importlib.metadata.version(SOLVERS[solver].package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _child(pipe, solver, model, limit_s, target):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # banners
    try:
        adapter = SOLVERS[solver](model, limit_s, target)
        pipe.send("loaded")
        start = time.perf_counter()
        adapter.solve()
        seconds = time.perf_counter() - start
        status, bound, x = adapter.read()
    except Licence:
        pipe.send({"status": "licence"})
    except Exception as err:  # a report, not the end of the comparison
        pipe.send({"status": f"failed: {type(err).__name__}: {err}"})
    else:
        pipe.send({"status": status, "seconds": seconds, "bound": bound, "x": x})


def solve(solver, model, limit_s, welfare):
    """Runs one solver on one model in a process of its own, until it reaches `welfare`
    (inf: to the end). Welfare and bound in the result are in log(1/rho), None if there is none."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    target = -(welfare - 1e-9) - model.offset
    process = multiprocessing.get_context("fork").Process(
        target=_child, args=(there, solver, model, limit_s, target)
    )
    process.start()
    there.close()
    try:
        answer = here.recv()
        if answer == "loaded":
            answer = here.recv() if here.poll(limit_s + GRACE_S) else {"status": "limit, ended"}
    except EOFError:
        answer = {"status": "failed: the solver's process died"}
    finally:
        process.kill()
        process.join()
    x, bound = answer.pop("x", None), answer.pop("bound", None)
    incumbent, broken = model.welfare(x) if x else (None, 0)
    if broken > TOLERANCE:
        answer["status"] = f"failed: its solution breaks a row by {broken:g}"
    bounded = bound is not None and abs(bound) < 1e19
    return {
        "seconds": None,
        **answer,
        "incumbent": incumbent,
        "bound": -bound - model.offset if bounded else None,
    }
