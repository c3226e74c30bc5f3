#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the auction's solver with others on the same instances.

Each solver gets each model, one thread, gap 0 and a time limit, and stops as
soon as its welfare reaches ours; its best model counts. README.md has the
form of an instance and of the results.
"""

import argparse
import json
import math
import signal
import sys

sys.dont_write_bytecode = True

from model import MODELS, TOLERANCE, build
from solver import SOLVERS, solve, version

CONTRADICTION = 1e-5  # welfare; above what the solvers' tolerances explain

NOTES = """\
time    solving only, building the model and starting the solver are not counted; 1 thread, gap 0,
        until the solver's welfare reaches ours (that of our packed allocation) less 1e-9.
        >N s: not reached in N s, a lower bound
compact no nodes: rows per box size. Its allocations are not packed onto nodes, ours are: in favour
        of the solver
nodes   every gang on a node. nodes+rows: the same with the rows of compact as cuts
gap     (bound - welfare) / apps in log(1/rho), of the best model, when the solver stopped
ratio   time of the solver's best model / our total, payments included
cpsat   has costs rounded to 1e-6; its bound is lowered by what that can hide, 5e-7 an app
licence the solver's licence does not take a model of that size"""


def measure(instance, model_name, model, solver, limit_s):
    """One record of the results: README.md names its fields."""
    ours = instance["ours"]
    r = {
        "instance": instance["name"],
        "solver": solver,
        "version": version(solver),
        "model": model_name,
        "columns": len(model.cost),
        "rows": len(model.rows),
        "nonzeros": sum(len(terms) for _, _, terms in model.rows),
        **solve(solver, model, limit_s, ours["welfare"]),
    }
    ran = not r["status"].startswith(("failed", "licence"))
    r["reached"] = (
        ran and r["incumbent"] is not None and r["incumbent"] >= ours["welfare"] - TOLERANCE
    )
    r["gap"] = r["behind"] = r["time"] = r["ratio"] = None
    if ran:
        least_s = r["seconds"] if r["reached"] else limit_s
        prefix = "" if r["reached"] else ">"
        r["time"] = prefix + seconds(least_s)
        r["ratio"] = f"{prefix}{least_s / ours['total_s']:.3g}"
    if ran and r["incumbent"] is not None:
        r["behind"] = (ours["welfare"] - r["incumbent"]) / model.apps
        if r["bound"] is not None:
            r["gap"] = max(0.0, r["bound"] - r["incumbent"]) / model.apps
    r["contradiction"] = contradiction(ours, r) if ran else None
    return r


def contradiction(ours, r):
    """What in a solver's answer cannot be if ours is right, else None."""
    if r["bound"] is not None and r["bound"] < ours["welfare"] - CONTRADICTION:
        return f"bound {r['bound']:.6f} is below our welfare {ours['welfare']:.6f}"
    if (
        "nodes" in r["model"]
        and r["incumbent"] is not None
        and r["incumbent"] > ours["bound"] + CONTRADICTION
    ):
        return f"packed welfare {r['incumbent']:.6f} is above our bound {ours['bound']:.6f}"
    return None


def seconds(s):
    return f"{s * 1e3:.3g} ms" if s < 1 else f"{s:.3g} s"


def number(x):
    return "-" if x is None else f"{x:.1e}"


def rank(r):
    """Orders a solver's records on one instance, best model first."""
    if r["reached"]:
        return 0, r["seconds"]
    return (1, r["gap"] if r["gap"] is not None else math.inf) if r["time"] else (2, 0)


def table(instances, records, models):
    lines = [["instance", "our time", "our gap", "solver", *models, "best", "gap", "ratio"]]
    for instance in instances:
        ours = instance["ours"]
        gap = (ours["bound"] - ours["welfare"]) / len(instance["bids"])
        head = [instance["name"], seconds(ours["total_s"]), number(gap)]
        by_solver = {}
        for r in records:
            if r["instance"] == instance["name"]:
                by_solver.setdefault(r["solver"], {})[r["model"]] = r
        for solver, found in by_solver.items():
            cells = [
                (found[m]["time"] or found[m]["status"].split(":")[0]) if m in found else "-"
                for m in models
            ]
            best = min(found.values(), key=rank)
            tail = (
                [best["model"], number(best["gap"]), best["ratio"] + "x"]
                if best["time"]
                else ["-"] * 3
            )
            lines.append(head + [solver] + cells + tail)
            head = [""] * 3
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)


def compare(instances, solvers, models, limit_s, records):
    """Appends to records, so that they are there after Ctrl-C."""
    for instance in instances:
        for name in models:
            model = build(instance, name)
            for solver in solvers:
                r = measure(instance, name, model, solver, limit_s)
                records.append(r)
                progress = (
                    f"{r['instance']} {solver} {name} ({r['columns']} x {r['rows']}):"
                    f" {r['status']}, {r['time'] or '-'},"
                    f" gap {number(r['gap'])}, behind ours {number(r['behind'])}"
                )
                print(progress, file=sys.stderr, flush=True)
                if r["contradiction"]:
                    print(f"  contradiction: {r['contradiction']}", file=sys.stderr, flush=True)


def main():
    def listed(known):
        def parse(text):
            names = text.split(",")
            for name in names:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
            return names

        return parse

    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Exit status 1 if a solver failed or contradicts us, 130 after Ctrl-C.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("instances", nargs="*", metavar="INSTANCE.json")
    parser.add_argument(
        "--limit", type=float, default=60, metavar="S", help="seconds a solve may take (default 60)"
    )
    parser.add_argument(
        "--solvers",
        type=listed(SOLVERS),
        default=list(SOLVERS),
        help=f"default {','.join(SOLVERS)}",
    )
    parser.add_argument(
        "--models",
        type=listed(MODELS),
        default=["compact", "nodes"],
        help=f"of {','.join(MODELS)}; default compact,nodes",
    )
    parser.add_argument("--json", metavar="OUT", help="file for the results")
    parser.add_argument(
        "--self-test", action="store_true", help="check solvers and models against enumeration"
    )
    args = parser.parse_args()
    if bool(args.instances) == args.self_test:
        parser.error("give instances, or --self-test alone")

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    solvers = [s for s in args.solvers if version(s)]
    for s in args.solvers:
        if s not in solvers:
            print(f"{s}: not installed, left out", file=sys.stderr)
    if args.self_test:
        from selftest import selftest

        return selftest(solvers)

    instances, records, status = [], [], 0
    for path in args.instances:
        with open(path, encoding="utf-8") as f:
            instances.append(json.load(f))
    try:
        compare(instances, solvers, args.models, args.limit, records)
    except KeyboardInterrupt:
        print("interrupted: what follows is incomplete", file=sys.stderr)
        status = 130
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"limit_s": args.limit, "threads": 1, "results": records}, f, indent=1)
            f.write("\n")
    print(table(instances, records, args.models), NOTES, sep="\n\n")
    print("with    " + ", ".join(f"{s} ({SOLVERS[s].package} {version(s)})" for s in solvers))
    if any(r["contradiction"] or r["status"].startswith("failed") for r in records):
        status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
