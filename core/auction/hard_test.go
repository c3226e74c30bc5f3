// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"themis/core/cluster"
)

// greedy is the plain rival: serve, again and again, the next gang that gains
// most per GPU, on the fullest node that holds it.
func greedy(nodes []Node, bids []Bid) float64 {
	m := newModel(NewSpace(nodes), bids)
	p := m.newPacking()
	stuck := map[int]bool{}
	for {
		best, top := -1, 0.0
		for i, d := range m.bidders {
			if stuck[i] || p.k[i] == len(d.steps) {
				continue
			}
			g := &d.bid.Gangs[d.steps[p.k[i]].gangs[0]]
			if gain := (d.value[p.k[i]+1][0] - p.worth[i]) / float64(g.Shape.Count()); best < 0 || gain > top {
				best, top = i, gain
			}
		}
		if best < 0 {
			return p.welfare
		}
		stuck[best] = !p.serve(best)
	}
}

// gangs is an app of n gangs of one shape.
func gangs(i, n int, sh cluster.Shape, rho func(rate, lost float64) float64) Bid {
	b := Bid{App: fmt.Sprint("a", i), Order: int64(i), Rho: rho}
	for k := range n {
		b.Gangs = append(b.Gangs, Gang{ID: fmt.Sprint(i, ".", k), Shape: sh})
	}
	return b
}

func one(gpus int) cluster.Shape { return cluster.Shape{GPUsPerNode: gpus, NodesMin: 1, NodesMax: 1} }

// threshold is worth little below so many GPUs and much from there on.
func threshold(gpus, gain float64) func(rate, lost float64) float64 {
	return func(rate, lost float64) float64 {
		if rate < gpus {
			return 10
		}
		return 10 / gain
	}
}

func saturating(work float64) func(rate, lost float64) float64 {
	return func(rate, lost float64) float64 { return 1 + work/(1+rate) }
}

// TestHardInstances: rounds that break naive code. Each says what plain greedy
// reaches, what the auction reaches, and what is provably left to gain, all in
// log welfare per bidder.
func TestHardInstances(t *testing.T) {
	many := func(n int, make func(i int) Bid) (out []Bid) {
		for i := range n {
			out = append(out, make(i))
		}
		return out
	}
	racked := func(nodes []Node, per int) []Node {
		for i := range nodes {
			nodes[i].Rack = fmt.Sprint("r", i/per)
		}
		return nodes
	}
	starved := plain(8, 8)
	for i := range starved {
		if starved[i].CPUs = 32; i%2 == 0 {
			starved[i].CPUs = 2
		}
	}
	wide := func(n, each int) cluster.Shape {
		return cluster.Shape{GPUsPerNode: each, NodesMin: n, NodesMax: n}
	}
	spread := func(b Bid) Bid {
		for i := range b.Gangs {
			b.Gangs[i].Rate = func(gpus int, l cluster.Level) float64 { return float64(gpus) * []float64{1, 1, .7, .3}[l] }
		}
		return b
	}
	cases := []struct {
		name  string
		nodes []Node
		bids  []Bid
		gap   float64 // at most, per bidder
		loses bool    // greedy does, by more than 0.01 per bidder
	}{
		{"gangs of 3 on nodes of 8", plain(6, 8), many(12, func(i int) Bid { return gangs(i, 3, one(3), saturating(10+float64(i))) }), .01, false},
		{"gangs of 3 and 5", plain(6, 8), many(12, func(i int) Bid { return gangs(i, 2, one(3+2*(i%2)), saturating(20+float64(i))) }), .03, false},
		{"nothing below 8 GPUs helps", plain(4, 8), append(many(4, func(i int) Bid { return gangs(i, 8, one(1), threshold(8, 6)) }),
			many(16, func(i int) Bid { return gangs(10+i, 2, one(1), saturating(1)) })...), .03, true},
		{"thresholds that do not all fit", plain(3, 8), many(9, func(i int) Bid { return gangs(i, 6, one(1), threshold(5, 2+float64(i%3))) }), .1, true},
		{"one of 8 against many of 4", plain(1, 8), []Bid{gangs(0, 1, one(8), threshold(8, 9)), gangs(1, 1, one(4), threshold(4, 3.1)), gangs(2, 1, one(4), threshold(4, 2))}, .001, true},
		{"one of 16 against many of 1", plain(2, 8), append(many(10, func(i int) Bid { return gangs(i, 1, one(1), threshold(1, 1.4)) }),
			gangs(99, 1, wide(2, 8), threshold(16, 150))), .03, true},
		{"3 free on every node", plain(16, 3), many(20, func(i int) Bid { return gangs(i, 2, one(1+i%4), saturating(8)) }), .01, false},
		{"7 free on every node", plain(16, 7), many(30, func(i int) Bid { return gangs(i, 2, one(1<<(i%4)), saturating(20)) }), .01, false},
		{"no rack with 16 free", racked(plain(6, 8), 1), many(5, func(i int) Bid { return spread(gangs(i, 1, wide(2, 8), saturating(40))) }), .01, false},
		{"one rack with 16 free", racked(plain(3, 8), 2), []Bid{gangs(0, 1, one(8), saturating(3)), gangs(1, 1, one(8), saturating(2.9)),
			spread(gangs(2, 1, wide(2, 8), saturating(60)))}, .001, true},
		{"CPUs are gone", starved, many(20, func(i int) Bid {
			b := gangs(i, 2, one(2), saturating(9))
			for k := range b.Gangs {
				b.Gangs[k].Shape.CPUsPerGPU = 4
			}
			return b
		}), .01, false},
		{"exact ties", plain(4, 8), many(64, func(i int) Bid { return gangs(i, 1, one(1), saturating(5)) }), 1e-4, false},
		{"some never end without GPUs", plain(1, 8), append(many(6, func(i int) Bid { return gangs(i, 8, one(1), proportional(10)) }),
			gangs(9, 1, one(8), threshold(8, 1e6))), 1e-6, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := float64(len(c.bids))
			rival := greedy(c.nodes, c.bids)
			res := Run(NewSpace(c.nodes), c.bids)
			t.Logf("greedy %.4f, auction %.4f, gap %.5f, exact %v", rival/n, res.Welfare/n, (res.Bound-res.Welfare)/n, res.Exact)
			if res.Welfare < rival-1e-9 {
				t.Errorf("greedy does better: %.6f against %.6f", rival, res.Welfare)
			}
			if c.loses && res.Welfare < rival+.01*n {
				t.Errorf("greedy was to lose badly and reaches %.4f of %.4f", rival/n, res.Welfare/n)
			}
			if gap := (res.Bound - res.Welfare) / n; gap > c.gap {
				t.Errorf("gap %.5f, at most %g is expected", gap, c.gap)
			}
			if _, err := Verify(res.Proof()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTiesByOrder: of equal apps the earlier one wins, however they are listed.
func TestTiesByOrder(t *testing.T) {
	bids := []Bid{gangs(2, 1, one(1), saturating(5)), gangs(0, 1, one(1), saturating(5)), gangs(1, 1, one(1), saturating(5))}
	res := Run(NewSpace(plain(1, 2)), bids)
	if won(&res, "a0") != 1 || won(&res, "a1") != 1 || won(&res, "a2") != 0 {
		t.Errorf("the winners are %+v", res.Awards)
	}
}

// TestDegenerateRounds: what cannot be solved has a defined result.
func TestDegenerateRounds(t *testing.T) {
	nan := func(rate, lost float64) float64 { return math.NaN() }
	inf := func(rate, lost float64) float64 { return math.Inf(1) }
	zero := func(rate, lost float64) float64 { return 0 }
	rises := func(rate, lost float64) float64 { return 1 + rate }
	cases := []struct {
		name  string
		nodes []Node
		bids  []Bid
		want  string // app:GPUs
	}{
		{"nothing on offer", nil, []Bid{gangs(0, 1, one(1), saturating(1))}, ""},
		{"nothing free", plain(2, 0), []Bid{gangs(0, 1, one(1), saturating(1))}, ""},
		{"nobody bids", plain(2, 8), nil, ""},
		{"a bid for nothing", plain(2, 8), []Bid{{App: "a0", Rho: saturating(1)}}, ""},
		{"rho is not a number", plain(1, 2), []Bid{gangs(0, 2, one(1), nan), gangs(1, 2, one(1), saturating(1))}, "a1:2"},
		{"rho is always infinite", plain(1, 2), []Bid{gangs(0, 2, one(1), inf), gangs(1, 2, one(1), saturating(1))}, "a1:2"},
		{"no work is left", plain(1, 2), []Bid{gangs(0, 2, one(1), zero), gangs(1, 2, one(1), saturating(1))}, "a1:2"},
		{"rho rises with GPUs", plain(1, 2), []Bid{gangs(0, 2, one(1), rises)}, ""},
		{"a gang of no GPUs", plain(1, 2), []Bid{gangs(0, 1, cluster.Shape{NodesMin: 1}, saturating(1)), gangs(1, 1, one(2), saturating(1))}, "a1:2"},
		{"a negative weight reads as 1", plain(1, 1), []Bid{{App: "a0", Weight: -3, Rho: saturating(1), Gangs: gangs(0, 1, one(1), nil).Gangs}}, "a0:1"},
		{"a node that appears twice", append(plain(1, 2), plain(1, 2)...), []Bid{gangs(0, 4, one(1), saturating(1))}, "a0:2"},
		{"a node that does not exist", plain(1, 2), []Bid{{App: "a0", Rho: saturating(1), Gangs: []Gang{{ID: "x", Shape: one(1), Required: []string{"nowhere"}}, {ID: "y", Shape: one(1)}}}}, "a0:1"},
		{"negative counts", []Node{{Name: "n0", GPUs: []cluster.GPUs{{Total: -4}, {Type: "x", Total: 1}}, CPUs: -7, MemMiB: -9}}, []Bid{gangs(0, 2, one(1), saturating(1))}, "a0:1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res := Run(NewSpace(c.nodes), c.bids)
			if got := winners(&res); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if math.IsNaN(res.Welfare) || math.IsInf(res.Welfare, 0) || res.Bound < res.Welfare-1e-9 {
				t.Errorf("welfare %g, bound %g", res.Welfare, res.Bound)
			}
			if _, err := Verify(res.Proof()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVerifyRefuses: whatever is changed in a proof, the checker notices.
func TestVerifyRefuses(t *testing.T) {
	nodes := plain(2, 4)
	nodes[0].Rack, nodes[1].Rack = "r", "r"
	var bids []Bid
	for i := range 4 {
		bids = append(bids, gangs(i, 2, one(2), saturating(5+float64(i))))
	}
	scoped := gangs(7, 1, one(1), saturating(1))
	scoped.Gangs[0].Scope = NewScope([]string{"n0"})
	res := Run(NewSpace(nodes), append(bids, scoped))
	raw, err := json.Marshal(res.Proof())
	if err != nil {
		t.Fatal(err)
	}
	winner := func(p *Proof) *ProofBid {
		for i := range p.Bids {
			if p.Bids[i].Served > 0 {
				return &p.Bids[i]
			}
		}
		t.Fatal("nobody won")
		return nil
	}
	for name, forge := range map[string]func(p *Proof){
		"a GPU sold twice":                  func(p *Proof) { p.Nodes[winner(p).Places[0].Parts[0].Node].GPUs[0]-- },
		"a gang cut short":                  func(p *Proof) { winner(p).Places[0].Parts[0].GPUs-- },
		"a gang moved onto a full node":     func(p *Proof) { part := &winner(p).Places[0].Parts[0]; part.Node = 1 - part.Node },
		"a gang that is not the bid's":      func(p *Proof) { b := winner(p); b.Places = append(b.Places, b.Places[0]) },
		"a winner left out":                 func(p *Proof) { b := winner(p); b.Places = b.Places[1:] },
		"a better rho than was bid":         func(p *Proof) { winner(p).After *= 0.9 },
		"a bid that would have gained more": func(p *Proof) { b := &p.Bids[1]; last := b.Rho[len(b.Rho)-1]; last[0] *= 0.5 },
		"an option hidden":                  func(p *Proof) { b := &p.Bids[0]; b.Rho = b.Rho[:len(b.Rho)-1] },
		"a lower bound":                     func(p *Proof) { p.Bound -= 0.1 },
		"more welfare":                      func(p *Proof) { p.Welfare += 0.1 },
		"a negative price":                  func(p *Proof) { p.Rows[0].Price = -1 },
		"prices that do not give the bound": func(p *Proof) { p.Rows[0].Price += 0.3 },
		"a smaller capacity": func(p *Proof) {
			b := winner(p) // as if it had won nothing: the gap must be real, or the lie contradicts the welfare
			p.Welfare += b.Weight*math.Log(b.After) - b.Weight*math.Log(b.Rho[0][0])
			b.Served, b.Places, b.After = 0, nil, b.Rho[0][0]
			for i := range p.Rows {
				if row := &p.Rows[i]; row.Price > 0 && row.Price < p.Bound-p.Welfare {
					row.Capacity--
					p.Bound -= row.Price
					return
				}
			}
			t.Fatal("no price to lie with")
		},
		"a kind that takes more":             func(p *Proof) { p.Kinds[0].Need.GPUs++ },
		"an index that points nowhere":       func(p *Proof) { winner(p).Places[0].Kind = 99 },
		"a node that points nowhere":         func(p *Proof) { winner(p).Places[0].Parts[0].Node = -1 },
		"another ground":                     func(p *Proof) { p.Ground = -1000 },
		"CPUs given back by a gang":          func(p *Proof) { winner(p).Places[0].Parts[0].CPUs = -100 },
		"levels that are not told apart":     func(p *Proof) { p.Bids[0].Rho[0] = append(p.Bids[0].Rho[0], 1) },
		"a payment above 1":                  func(p *Proof) { winner(p).Payment = 1.5 },
		"a payment below what is proven":     func(p *Proof) { b := winner(p); b.Payment = b.PaymentLow / 2 },
		"one app's weight":                   func(p *Proof) { winner(p).Weight *= 3 },
		"a scope that names a node too many": func(p *Proof) { p.Scopes[0] = append(p.Scopes[0], 99) },
	} {
		t.Run(name, func(t *testing.T) {
			var p Proof
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(&p); err != nil {
				t.Fatalf("the true proof is refused: %v", err)
			}
			forge(&p)
			if _, err := Verify(&p); err == nil {
				t.Error("not noticed")
			}
		})
	}
}
