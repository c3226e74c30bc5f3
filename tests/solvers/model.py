# SPDX-License-Identifier: Apache-2.0
"""Instances of the auction and the integer models that solvers are given.

An instance is a dict as in README.md. Each app's first option is winning
nothing; it is the slack of the app's row and not a column, so an app has one
column per further option and its gain over nothing as the objective.
"""

import math
from dataclasses import dataclass, field

MODELS = ("compact", "nodes", "nodes+rows")
TOLERANCE = 1e-6  # of a row; what the solvers allow too
RESOURCES = ("gpus", "cpus", "mem")
MANY = 10**6  # gangs of a kind that needs nothing of a node


@dataclass
class Model:
    """minimise cost . x + offset over integers 0 <= x <= upper, rows lo <= a . x <= hi.

    cost and offset are negated welfare, in log(1/rho).
    """

    apps: int
    offset: float = 0.0
    cost: list = field(default_factory=list)
    upper: list = field(default_factory=list)
    rows: list = field(default_factory=list)  # (lo, hi, {column: coefficient})

    def column(self, upper, cost=0.0):
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1

    def row(self, lo, hi, terms):
        terms = {j: a for j, a in terms.items() if a}
        if terms:
            self.rows.append((lo, hi, terms))

    def welfare(self, x):
        """The welfare of the solution x, and by how much x breaks the worst row."""
        x = [round(v) for v in x]
        broken = max((max(-v, v - u) for v, u in zip(x, self.upper)), default=0)
        for lo, hi, terms in self.rows:
            activity = sum(a * x[j] for j, a in terms.items())
            broken = max(broken, lo - activity, activity - hi)
        return -self.offset - math.fsum(c * v for c, v in zip(self.cost, x)), broken


def build(instance, name):
    """compact: rows, no nodes. nodes: every gang placed. nodes+rows: both, the rows being cuts."""
    model = Model(len(instance["bids"]))
    wide, tight = {}, {}  # kind: {column: gangs of that kind}
    for options in instance["bids"]:
        nothing, *others = options
        model.offset -= nothing["value"]
        columns = {}
        for option in others:
            j = model.column(1, nothing["value"] - option["value"])
            columns[j] = 1
            for counts, gangs in (("wide", wide), ("tight", tight)):
                for kind, count in (option.get(counts) or {}).items():
                    gangs.setdefault(int(kind), {})[j] = count
        model.row(-math.inf, 1, columns)
    if name in ("compact", "nodes+rows"):
        _capacities(model, instance, wide, tight)
    if name in ("nodes", "nodes+rows"):
        _places(model, instance, wide, tight)
    return model


def _capacities(model, instance, wide, tight):
    for row in instance["rows"]:
        terms = {}
        for use, gangs in ((row["wide"], wide), (row["tight"], tight)):
            for kind, counts in gangs.items():
                for j, count in counts.items():
                    terms[j] = terms.get(j, 0) + use[kind] * count
        model.row(-math.inf, row["capacity"], terms)


def _places(model, instance, wide, tight):
    """Integers y[kind, node], the parts of a kind's gangs on a node. Counts suffice: z gangs of
    m distinct nodes each exist exactly when sum y = m z and every y <= z."""
    nodes, kinds = instance["nodes"], instance["kinds"]
    loads = [{} for _ in nodes]  # {column y: kind}

    def room(kind, n):
        return min(
            (nodes[n][r] // kind[r] for r in RESOURCES if nodes[n][r] >= 0 and kind[r] > 0),
            default=MANY,
        )

    def gangs(kind, members):
        """Terms that sum to the gangs of a kind on the nodes `members`."""
        rooms = {n: room(kind, n) for n in members}
        rooms = {n: r for n, r in rooms.items() if r > 0}
        if len(rooms) < kind["nodes"]:
            return {}
        parts = {}
        for n, r in rooms.items():
            y = model.column(r)
            parts[y] = 1
            loads[n][y] = kind
        if kind["nodes"] == 1:
            return parts
        z = model.column(sum(rooms.values()) // kind["nodes"])
        model.row(0, 0, {**parts, z: -kind["nodes"]})
        for y in parts:
            model.row(-math.inf, 0, {y: 1, z: -1})
        return {z: 1}

    racks = {}
    for n, node in enumerate(nodes):
        racks.setdefault(node["rack"], []).append(n)
    for counts, groups in ((wide, [range(len(nodes))]), (tight, racks.values())):
        for k, won in sorted(counts.items()):
            placed = {j: -count for j, count in won.items()}
            for members in groups:
                placed.update(gangs(kinds[k], members))
            model.row(0, 0, placed)
    for node, load in zip(nodes, loads):
        for r in RESOURCES:
            if node[r] >= 0:
                model.row(-math.inf, node[r], {y: kind[r] for y, kind in load.items()})
