// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"themis/core/cluster"
)

// wild draws a round with everything in it: het groups, held, exclusive and
// required nodes, memory, CPUs in all, types, racks, choices of nodes.
func wild(r *rand.Rand) ([]Node, []Bid) {
	var nodes []Node
	mem, cpu := r.IntN(2) == 0, r.IntN(2) == 0
	for i := range 2 + r.IntN(3) {
		a, b := r.IntN(5), 0
		n := Node{Name: fmt.Sprint("n", i), Rack: []string{"", "r", "r", "q"}[r.IntN(4)], CPUs: -1, MemMiB: -1, Idle: r.IntN(2) == 0}
		n.GPUs = []cluster.GPUs{{Type: "a", Total: a}}
		if r.IntN(3) == 0 {
			b = r.IntN(3)
			n.GPUs = append(n.GPUs, cluster.GPUs{Type: "b", Total: b})
		}
		n.Real = r.IntN(a + b + 1)
		if cpu && r.IntN(3) > 0 {
			n.CPUs = r.IntN(10)
		}
		if mem && r.IntN(3) > 0 {
			n.MemMiB = int64(r.IntN(10))
		}
		nodes = append(nodes, n)
	}
	name := func() string { return nodes[r.IntN(len(nodes))].Name }
	var scopes []*Scope
	scopes = append(scopes, nil, nil, nil, NewScope([]string{"n0"}), NewScope([]string{"n0", "n1"}), NewScope([]string{"n1", "n2", "n3"}))
	speeds := [][]float64{{1, 1, 1, 1}, {1, 1, .8, .5}, {1, 1, .5, .2}, {1, 1, .8, .3}}
	var bids []Bid
	for i := range 1 + r.IntN(4) {
		w, id := 1+r.Float64()*50, 1+r.Float64()*20
		b := Bid{App: fmt.Sprint("a", i), Order: int64(i), Weight: []float64{0, 1, .5, 2}[r.IntN(4)], Base: float64(r.IntN(2) * r.IntN(3))}
		switch r.IntN(3) {
		case 0:
			b.Rho = func(rate, lost float64) float64 { return (3 + (w+lost)/(rate+.5)) / id }
		case 1:
			b.Rho = func(rate, lost float64) float64 {
				if rate < 3 {
					return (5 + lost) / id
				}
				return (1 + lost + 2/rate) / id
			}
		default:
			b.Rho = func(rate, lost float64) float64 { return (w + lost) / rate / id }
		}
		var before Gang
		for k := 0; k < 1+r.IntN(4); k++ {
			g := Gang{ID: fmt.Sprint(i, ".", k), Scope: scopes[r.IntN(len(scopes))]}
			size := 1 + r.IntN(4)
			switch r.IntN(8) {
			case 0:
				g.Shape = cluster.Shape{NodesMin: 1, GPUs: size}
				if size%2 == 0 && r.IntN(2) == 0 {
					g.Shape.Unit = 2
				}
			case 1:
				g.Shape = cluster.Shape{NodesMin: 1 + r.IntN(2), NodesMax: 2, GPUs: size}
			case 2:
				g.Shape = cluster.Shape{NodesMin: 2, NodesMax: 2, GPUsPerNode: min(size, 2)}
			case 3:
				g.Shape = cluster.Shape{NodesMin: 1, NodesMax: 1 + r.IntN(3), GPUsPerNode: min(size, 2)}
			case 4:
				g.Shape = cluster.Shape{NodesMin: 2, NodesMax: 3, GPUsPerNode: 1}
			case 5:
				g.Shape = cluster.Shape{NodesMin: 1, NodesMax: 3 * r.IntN(2), GPUsPerNode: min(size, 2), CPUs: 1 + r.IntN(6)}
			default:
				g.Shape = cluster.Shape{NodesMin: 1, NodesMax: 1, GPUsPerNode: size}
			}
			g.Shape.CPUsPerGPU, g.Shape.CPUsPerNode = r.IntN(3)*r.IntN(2), r.IntN(3)*r.IntN(2)
			g.Shape.MemPerGPU, g.Shape.MemPerNode, g.Shape.MemPerCPU = int64(r.IntN(3)*r.IntN(2)), int64(r.IntN(3)*r.IntN(2)), int64(r.IntN(2)*r.IntN(2))
			if r.IntN(5) == 0 {
				g.Shape.CPUs = 1 + r.IntN(6)
			}
			g.Shape.Type = []string{"", "", "", "a", "b"}[r.IntN(5)]
			g.Shape.Exclusive = r.IntN(8) == 0
			if r.IntN(2) == 0 {
				sp, e := speeds[r.IntN(len(speeds))], []float64{1, .9, .5}[r.IntN(3)]
				g.Rate = func(gpus int, l cluster.Level) float64 { return math.Pow(float64(gpus), e) * sp[l] }
			}
			if g.Restart = 0; r.IntN(3) == 0 {
				g.Restart = float64(r.IntN(10))
			}
			for range r.IntN(4) * r.IntN(2) { // mostly in no order
				if scope := scopes[r.IntN(len(scopes))]; scope != nil {
					g.Faster = append(g.Faster, Faster{scope, []float64{3, 2, 1.5, 1, .5, -1, math.Inf(1), math.NaN()}[r.IntN(8)]})
				}
			}
			if k > 0 && r.IntN(2) == 0 { // alike
				id := g.ID
				g = before
				g.ID = id
			}
			before = g
			switch {
			case r.IntN(8) == 0 && (g.Shape.NodesMax != 1):
				g.Required = []string{name()}
			case r.IntN(5) == 0: // held: where it would fit
				s := NewSpace(nodes)
				h := g
				h.Scope = nil
				if p := s.PlaceAll([]Gang{h}); p != nil {
					g.Held = p[0].On
				}
			}
			b.Gangs = append(b.Gangs, g)
		}
		if len(b.Gangs) > 1 && r.IntN(4) == 0 {
			b.Gangs[0].Group, b.Gangs[1].Group = "g", "g"
		}
		bids = append(bids, b)
	}
	return nodes, bids
}

// valid says what is wrong with the placements, the plain way.
func valid(nodes []Node, bids []Bid, awards []Award) error {
	type use struct {
		gpus, cpus, jobs int
		mem              int64
		typed            map[string]int
		whole            bool
	}
	u := map[string]*use{}
	nd := map[string]*Node{}
	for i := range nodes {
		u[nodes[i].Name], nd[nodes[i].Name] = &use{typed: map[string]int{}}, &nodes[i]
	}
	for _, a := range awards {
		groups := map[string]map[string]bool{}
		for _, p := range a.Places {
			g := gangOf(bids, p.Gang)
			sum, nn := 0, len(p.On)
			seen := map[string]bool{}
			for _, s := range p.On {
				if seen[s.Node] || s.GPUs < 1 || nd[s.Node] == nil {
					return fmt.Errorf("%s: node %s", p.Gang, s.Node)
				}
				seen[s.Node] = true
				sum += s.GPUs
				x := u[s.Node]
				w := needs(g.Shape, s.GPUs, nn)
				x.gpus += s.GPUs
				x.cpus += w.CPUs
				x.mem += w.MemMiB
				x.jobs++
				x.typed[g.Shape.Type] += s.GPUs
				x.whole = x.whole || g.Shape.Exclusive
				if g.Scope != nil && !g.Scope.names[s.Node] && g.Held == nil {
					return fmt.Errorf("%s: scope", p.Gang)
				}
				if g.Shape.Exclusive && !nd[s.Node].Idle && g.Held == nil {
					return fmt.Errorf("%s: exclusive on a busy node", p.Gang)
				}
				if s.GPUs%g.Shape.Split() != 0 && g.Held == nil {
					return fmt.Errorf("%s: units of %d %+v", p.Gang, g.Shape.Unit, p)
				}
				if g.Shape.GPUsPerNode > 0 && s.GPUs != g.Shape.GPUsPerNode && g.Held == nil {
					return fmt.Errorf("%s: per node %+v", p.Gang, p)
				}
			}
			if g.Held != nil {
				if !reflect.DeepEqual(g.Held, p.On) {
					return fmt.Errorf("%s: held %v on %v", p.Gang, g.Held, p.On)
				}
			} else {
				if g.Shape.GPUsPerNode == 0 && sum != g.Shape.GPUs || nn < g.Shape.NodesMin || nn > max(g.Shape.NodesMax, g.Shape.NodesMin) && g.Shape.NodesMax > 0 {
					return fmt.Errorf("%s: not whole %+v %v", p.Gang, g.Shape, p.On)
				}
				for _, q := range g.Required {
					if !seen[q] {
						return fmt.Errorf("%s: required", p.Gang)
					}
				}
				if g.Group != "" {
					for n := range seen {
						if groups[g.Group][n] {
							return fmt.Errorf("%s: group on one node", p.Gang)
						}
					}
				}
			}
			if g.Group != "" {
				if groups[g.Group] == nil {
					groups[g.Group] = map[string]bool{}
				}
				for n := range seen {
					groups[g.Group][n] = true
				}
			}
			if l := cluster.SpanOf(p.On, func(n string) string { return nd[n].Rack }); l != p.Level {
				return fmt.Errorf("%s: level", p.Gang)
			}
		}
	}
	for n, x := range u {
		free := 0
		for _, t := range nd[n].GPUs {
			free += t.Total
			if x.typed[t.Type] > t.Total {
				return fmt.Errorf("%s: type %s", n, t.Type)
			}
		}
		if x.gpus > free || nd[n].CPUs >= 0 && x.cpus > nd[n].CPUs || nd[n].MemMiB >= 0 && x.mem > nd[n].MemMiB || x.whole && x.jobs > 1 {
			return fmt.Errorf("%s: over %+v of %+v", n, *x, *nd[n])
		}
	}
	return nil
}

// TestWildRounds: whatever is asked for, what is won can be held, the proof
// passes, also after payments in GPUs, and a second run says the same.
func TestWildRounds(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes, bids := wild(r)
		space := NewSpace(nodes)
		res, again := Run(space, bids), Run(NewSpace(nodes), bids)
		if err := valid(nodes, bids, res.Awards); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(res.Awards, again.Awards) {
			t.Errorf("seed %d: one round, two results", seed)
		}
		if _, err := Verify(res.Proof()); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for i := range res.pay {
			res.pay[i].high = max(r.Float64(), 1e-6)
			res.pay[i].low = res.pay[i].high
		}
		res.Withhold(space)
		if _, err := Verify(res.Proof()); err != nil {
			t.Errorf("seed %d, withheld: %v", seed, err)
		}
		if err := valid(nodes, bids, res.Awards); err != nil {
			t.Errorf("seed %d, withheld: %v", seed, err)
		}
	}
}
