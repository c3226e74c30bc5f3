// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

// instance draws a small round: whole-GPU gangs on few nodes, so that the
// oracle can try everything.
func instance(t *rapid.T) ([]Node, []Bid) {
	var nodes []Node
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		free := rapid.IntRange(0, 4).Draw(t, "free")
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%d", i), Rack: "r", GPUs: []cluster.GPUs{{Total: free}}, CPUs: -1, MemMiB: -1, Idle: true, Real: free})
	}
	var bids []Bid
	for i := range rapid.IntRange(1, 4).Draw(t, "apps") {
		work := rapid.Float64Range(1, 100).Draw(t, "work")
		ideal := rapid.Float64Range(1, 50).Draw(t, "ideal")
		b := Bid{App: fmt.Sprintf("a%d", i), Order: int64(i), Rho: func(rate float64) float64 { return (10 + work/(rate+0.5)) / ideal }}
		for k := range rapid.IntRange(1, 3).Draw(t, "gangs") {
			size := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "size")
			b.Gangs = append(b.Gangs, Gang{ID: fmt.Sprintf("%d.%d", i, k), Shape: cluster.Shape{NodesMin: 1, NodesMax: 1, GPUs: size}})
		}
		bids = append(bids, b)
	}
	return nodes, bids
}

// oracle is the dumb solver: every way to serve each app a first few of its
// gangs, each put on every node in turn.
func oracle(nodes []Node, bids []Bid) float64 {
	free := make([]int, len(nodes))
	for i := range nodes {
		free[i] = nodes[i].free("")
	}
	best := math.Inf(-1)
	var visit func(i, k int, rate, sum float64)
	visit = func(i, k int, rate, sum float64) {
		if i == len(bids) {
			best = max(best, sum)
			return
		}
		b := &bids[i]
		visit(i+1, 0, 0, sum-math.Log(b.Rho(rate))) // stop serving app i here
		if k == len(b.Gangs) {
			return
		}
		g := b.Gangs[k].Shape.GPUs
		for n := range free {
			if free[n] >= g {
				free[n] -= g
				visit(i, k+1, rate+float64(g), sum)
				free[n] += g
			}
		}
	}
	visit(0, 0, 0, 0)
	return best
}

func TestExactAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := instance(t)
		res := Run(NewSpace(nodes), bids)
		if want := oracle(nodes, bids); !res.Exact || math.Abs(res.Welfare-want) > 1e-9 {
			t.Fatalf("welfare %g (exact %v), the oracle finds %g", res.Welfare, res.Exact, want)
		}
	})
}

func TestRoundProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := instance(t)
		space := NewSpace(nodes)
		res := Run(space, bids)
		used := map[string]int{}
		for _, a := range res.Awards {
			if !(a.Payment > 0 && a.Payment <= 1) {
				t.Fatalf("%s pays %g", a.App, a.Payment)
			}
			if a.Rho > a.Before+1e-12 {
				t.Fatalf("%s is worse off: %g after %g", a.App, a.Rho, a.Before)
			}
			for _, p := range a.Places {
				var got int
				for _, s := range p.On {
					used[s.Node] += s.GPUs
					got += s.GPUs
				}
				if want := shapeOf(bids, p.Gang).Count(); got != want {
					t.Fatalf("gang %s of %d GPUs got %d", p.Gang, want, got)
				}
			}
		}
		var left int
		for _, n := range nodes {
			if used[n.Name] > n.free("") {
				t.Fatalf("%d of %d GPUs of %s are sold", used[n.Name], n.free(""), n.Name)
			}
			left += n.free("") - used[n.Name]
		}
		if space.Free() != left {
			t.Fatalf("the space says %d are left, %d are", space.Free(), left)
		}
		if res.Welfare > res.Bound+1e-9 {
			t.Fatalf("welfare %g above its bound %g", res.Welfare, res.Bound)
		}
	})
}

// TestOrderAndNamesDoNotMatter turns bids and nodes around and renames nodes.
func TestOrderAndNamesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := instance(t)
		one := Run(NewSpace(nodes), bids)
		slices.Reverse(bids)
		slices.Reverse(nodes)
		for i := range nodes {
			nodes[i].Name = "other-" + nodes[i].Name
		}
		two := Run(NewSpace(nodes), bids)
		if math.Abs(one.Welfare-two.Welfare) > 1e-12 || len(one.Awards) != len(two.Awards) {
			t.Fatalf("welfare %g became %g", one.Welfare, two.Welfare)
		}
		for i := range one.Awards {
			a, b := one.Awards[i], two.Awards[i]
			if a.App != b.App || a.Rho != b.Rho || math.Abs(a.Payment-b.Payment) > 1e-12 {
				t.Fatalf("%s rho %g payment %g became %s rho %g payment %g", a.App, a.Rho, a.Payment, b.App, b.Rho, b.Payment)
			}
		}
	})
}

func shapeOf(bids []Bid, gang string) cluster.Shape {
	for _, b := range bids {
		for _, g := range b.Gangs {
			if g.ID == gang {
				return g.Shape
			}
		}
	}
	return cluster.Shape{}
}

func node(name, rack string, gpus int) Node {
	return Node{Name: name, Rack: rack, GPUs: []cluster.GPUs{{Total: gpus}}, CPUs: 32, MemMiB: 64000, Idle: true, Real: gpus}
}

func TestPlace(t *testing.T) {
	speed := func(l cluster.Level) float64 { return []float64{1, 1, .7, .5}[l] }
	cases := []struct {
		name  string
		nodes []Node
		gang  Gang
		want  string
	}{
		{"the fullest node that holds it", []Node{node("a", "", 8), node("b", "", 5)}, Gang{Shape: cluster.Shape{GPUsPerNode: 4}}, "b:4 machine"},
		{"any split, one node if one holds it", []Node{node("a", "", 3), node("b", "", 4)}, Gang{Shape: cluster.Shape{GPUs: 4, NodesMax: 4}}, "b:4 machine"},
		{"any split over the fewest nodes", []Node{node("a", "", 3), node("b", "", 3), node("c", "", 2)}, Gang{Shape: cluster.Shape{GPUs: 6, NodesMax: 4}}, "a:3 b:3 cluster"},
		{"two nodes in one rack", []Node{node("a", "x", 8), node("b", "y", 8), node("c", "y", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 8, NodesMin: 2}}, "b:8 c:8 rack"},
		{"too few CPUs on the fullest", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 1}}, CPUs: 2, MemMiB: -1, Real: 1}, node("b", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 1, CPUsPerNode: 4}}, "b:1 machine"},
		{"typed", []Node{{Name: "a", GPUs: []cluster.GPUs{{Type: "v100", Total: 4}, {Type: "a100", Total: 2}}, CPUs: -1, MemMiB: -1, Real: 6}}, Gang{Shape: cluster.Shape{GPUsPerNode: 3, Type: "a100"}}, "none"},
		{"whole nodes only", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 8}}, CPUs: 30, MemMiB: -1, Real: 8}}, Gang{Shape: cluster.Shape{GPUsPerNode: 1, Exclusive: true}}, "none"},
		{"a required node, and more to reach the total", []Node{node("a", "", 8), node("b", "", 8), node("c", "", 2)}, Gang{Shape: cluster.Shape{GPUs: 9}, Required: []string{"b"}}, "b:8 a:1 cluster"},
		{"a required node that is full", []Node{node("a", "", 8), node("b", "", 0)}, Gang{Shape: cluster.Shape{GPUs: 2}, Required: []string{"b"}}, "none"},
		{"not eligible", []Node{node("a", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 1}, Eligible: func(string) bool { return false }}, "none"},
		{"really free before what a lease holds", []Node{{Name: "a", GPUs: []cluster.GPUs{{Total: 4}}, CPUs: -1, MemMiB: -1}, node("b", "", 8)}, Gang{Shape: cluster.Shape{GPUsPerNode: 4}}, "b:4 machine"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.gang.Speed = speed
			p, ok := NewSpace(c.nodes).Place(&c.gang)
			got := "none"
			if ok {
				got = ""
				for _, s := range p.On {
					got += fmt.Sprintf("%s:%d ", s.Node, s.GPUs)
				}
				got += p.Level.String()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestGreedyBeyondSmallRounds shows that a large round keeps the promises and
// says that it is not proven best.
func TestGreedyBeyondSmallRounds(t *testing.T) {
	var nodes []Node
	for i := range 8 {
		nodes = append(nodes, node(fmt.Sprintf("n%d", i), "", 8))
	}
	var bids []Bid
	for i := range 30 {
		b := Bid{App: fmt.Sprint(i), Order: int64(i), Rho: func(rate float64) float64 { return 1 + 10/(rate+1) }}
		for k := range 3 {
			b.Gangs = append(b.Gangs, Gang{ID: fmt.Sprint(i, ".", k), Shape: cluster.Shape{GPUsPerNode: 2}})
		}
		bids = append(bids, b)
	}
	res := Run(NewSpace(nodes), bids)
	if res.Exact || len(res.Awards) != 30 || res.Welfare > res.Bound {
		t.Errorf("exact %v, %d of 30 equal apps served, welfare %g, bound %g", res.Exact, len(res.Awards), res.Welfare, res.Bound)
	}
}
