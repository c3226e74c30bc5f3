# SPDX-License-Identifier: Apache-2.0
"""Checks models and solvers on instances small enough to enumerate."""

import itertools
import math
import random
import sys
from functools import lru_cache

from model import MODELS, RESOURCES, build
from solver import solve

LIMIT_S = 30
SIZES = (1, 2, 4, 8)


def selftest(solvers):
    """Prints a line per wrong answer and a summary; the exit status."""
    passed, failed = 0, 0

    def check(right, *what):
        nonlocal passed, failed
        passed, failed = passed + right, failed + (not right)
        if not right:
            print("wrong:", *what, file=sys.stderr, flush=True)

    for instance in [*corners(), *(draw(random.Random(seed), seed % 2 == 0) for seed in range(2))]:
        packed = enumerate_choices(instance, packs)
        filled = enumerate_choices(instance, fills)
        about = "packing against rows:", instance["name"], packed[0], filled[0]
        if instance["name"].startswith("exact"):
            check(packed == filled, *about)
        elif instance["name"].startswith("corner"):
            check(packed[0] < filled[0], *about)
        for name in MODELS:
            choices = filled if name == "compact" else packed
            model = build(instance, name)
            for solver in solvers:
                about = f"{instance['name']}, {solver}, {name}:"
                end = solve(solver, model, LIMIT_S, math.inf)
                if end["status"] == "licence":
                    continue
                check(end["status"] == "optimal", about, end)
                for field, slack in (("incumbent", 1e-5), ("bound", 1e-4)):
                    right = end[field] is not None and abs(end[field] - choices[0]) < slack
                    check(right, about, end, field, "is not", choices[0])
                target = choices[len(choices) // 4]
                stop = solve(solver, model, LIMIT_S, target)
                right = stop["incumbent"] is not None and stop["incumbent"] > target - 1e-6
                check(right and stop["status"] in ("target", "optimal"), about, stop, "for", target)
    print(f"solvers {', '.join(solvers) or 'none'}: {passed} passed, {failed} failed")
    return 1 if failed or not solvers else 0


def kind(nodes, gpus, cpus=0):
    return {"nodes": nodes, "gpus": gpus, "cpus": cpus, "mem": 0, "levels": nodes > 1}


def node(rack, gpus, cpus=-1):
    return {"rack": rack, "gpus": gpus, "cpus": cpus, "mem": 64}


def whole(name, nodes, kinds, bids):
    """The instance with a row per box size."""
    use = [[k["gpus"] // size * k["nodes"] for k in kinds] for size in SIZES]
    rows = [
        {"capacity": sum(n["gpus"] // size for n in nodes), "wide": u, "tight": u}
        for size, u in zip(SIZES, use)
    ]
    return {"name": name, "nodes": nodes, "kinds": kinds, "rows": rows, "bids": bids}


def corners():
    """Gangs that the rows let pass and the nodes do not, each beside one that fits."""

    def bids(*wanted):
        return [[{"value": -2.0}, *({"value": -1 / (i + 1), **w} for i, w in enumerate(wanted))]]

    return [
        whole(
            "corner: two parts of a gang on one node",
            [node(0, 8), node(0, 2), node(0, 1)],
            [kind(2, 2)],
            bids({"wide": {"0": 1}}, {"wide": {"0": 2}}),
        ),
        whole(
            "corner: a tight gang across racks",
            [node(0, 4), node(0, 2), node(1, 4), node(1, 2)],
            [kind(2, 4), kind(2, 2)],
            bids({"tight": {"1": 2}}, {"wide": {"0": 1}}, {"tight": {"0": 1}}),
        ),
        whole(
            "corner: GPUs without CPUs",
            [node(0, 8, 4), node(0, 1)],
            [kind(1, 4, 8), kind(1, 1, 4)],
            bids({"wide": {"1": 1}}, {"wide": {"1": 2}}, {"wide": {"0": 1}}),
        ),
        whole(
            "corner: 3-GPU gangs",
            [node(0, 4), node(0, 4), node(0, 4)],
            [kind(1, 3)],
            bids({"wide": {"0": 3}}, {"wide": {"0": 4}}),
        ),
    ]


def draw(rng, exact):
    """exact: machines only, gangs that are powers of two and GPUs alone, so that the rows say what
    packs. Else racks, CPUs, 3-GPU gangs and gangs of two nodes, for which they are a relaxation."""
    if exact:
        nodes = [node(0, rng.randint(1, 8)) for _ in range(3)]
        kinds = [kind(1, 1), kind(1, 2), kind(1, 4), kind(1, 8)]
    else:
        nodes = [node(n // 2, rng.randint(2, 6), rng.choice([-1, 8, 20])) for n in range(4)]
        kinds = [kind(1, 1, 4), kind(1, 3, 2), kind(1, 4, 8), kind(2, 2, 3)]
    bids = []
    for _ in range(5):
        need = rng.uniform(1, 3)
        options = [{"value": -need}]
        for _ in range(3):
            k = rng.randrange(len(kinds))
            level = rng.choice(["wide", "tight"]) if kinds[k]["levels"] else "wide"
            value = -need * rng.uniform(0.1, 0.9)
            options.append({"value": value, level: {str(k): rng.randint(1, 2)}})
        bids.append(options)
    return whole("exact" if exact else "mixed", nodes, kinds, bids)


def enumerate_choices(instance, feasible):
    """The welfare of every feasible choice of an option per app, best first."""
    found = []
    for choice in itertools.product(*instance["bids"]):
        gangs = {}
        for option in choice:
            for level in ("wide", "tight"):
                for k, count in option.get(level, {}).items():
                    gangs[int(k), level] = gangs.get((int(k), level), 0) + count
        if feasible(instance, gangs):
            found.append(math.fsum(option["value"] for option in choice))
    return sorted(found, reverse=True)


def fills(instance, gangs):
    return all(
        sum(row[level][k] * c for (k, level), c in gangs.items()) <= row["capacity"]
        for row in instance["rows"]
    )


def packs(instance, gangs):
    """Whether the gangs fit, by trying every set of nodes for each gang in turn."""
    nodes, kinds = instance["nodes"], instance["kinds"]
    queue = [(k, level) for (k, level), count in sorted(gangs.items()) for _ in range(count)]

    @lru_cache(None)
    def rest(i, free):
        if i == len(queue):
            return True
        kind, level = kinds[queue[i][0]], queue[i][1]
        for chosen in itertools.combinations(range(len(nodes)), kind["nodes"]):
            if level == "tight" and len({nodes[n]["rack"] for n in chosen}) > 1:
                continue
            left = [list(f) for f in free]
            for n in chosen:
                for r, resource in enumerate(RESOURCES):
                    if nodes[n][resource] >= 0:
                        left[n][r] -= kind[resource]
            if all(
                left[n][r] >= 0 or nodes[n][resource] < 0
                for n in chosen
                for r, resource in enumerate(RESOURCES)
            ):
                if rest(i + 1, tuple(map(tuple, left))):
                    return True
        return False

    return rest(0, tuple(tuple(node[r] for r in RESOURCES) for node in nodes))
