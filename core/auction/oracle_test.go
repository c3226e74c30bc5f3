// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

// small draws a round that the oracle can try out whole: gangs of every shape
// on a few nodes, with CPUs, racks, types and choices of nodes.
func small(t *rapid.T) ([]Node, []Bid) {
	var nodes []Node
	count := rapid.IntRange(1, 3).Draw(t, "nodes")
	for i := range count {
		free := rapid.IntRange(0, 4).Draw(t, "free")
		n := Node{Name: fmt.Sprintf("n%d", i), Rack: rapid.SampledFrom([]string{"", "r", "q"}).Draw(t, "rack"), CPUs: -1, MemMiB: -1,
			Idle: rapid.Bool().Draw(t, "idle"), Real: free}
		n.GPUs = []cluster.GPUs{{Type: "a", Total: free}}
		if rapid.IntRange(0, 3).Draw(t, "mixed") == 0 {
			n.GPUs = append(n.GPUs, cluster.GPUs{Type: "b", Total: rapid.IntRange(0, 2).Draw(t, "more")})
			n.Real += n.GPUs[1].Total
		}
		if rapid.Bool().Draw(t, "cpus") {
			n.CPUs = rapid.IntRange(0, 9).Draw(t, "free cpus")
		}
		nodes = append(nodes, n)
	}
	fast, faster := NewScope([]string{"n1"}), NewScope([]string{"n1", "n2"})
	speeds := [][]Faster{{{fast, 2}}, {{faster, 1.3}}, {{fast, 3}, {faster, 1.5}}}
	scopes := []*Scope{nil, nil, NewScope([]string{"n0"}), NewScope([]string{"n0", "n1"})}
	var bids []Bid
	for i := range rapid.IntRange(1, 3).Draw(t, "apps") {
		b := Bid{App: fmt.Sprintf("a%d", i), Order: int64(i), Weight: rapid.SampledFrom([]float64{0, 1, .5, 2}).Draw(t, "weight"), Rho: valuation(t)}
		for k := range rapid.IntRange(1, 3).Draw(t, "gangs") {
			g := Gang{ID: fmt.Sprintf("%d.%d", i, k), Scope: rapid.SampledFrom(scopes).Draw(t, "scope")}
			size := rapid.IntRange(1, 4).Draw(t, "size")
			switch rapid.IntRange(0, 5).Draw(t, "shape") {
			case 0:
				g.Shape = cluster.Shape{NodesMin: 1, GPUs: size}
				if size%2 == 0 && rapid.Bool().Draw(t, "pairs") {
					g.Shape.Unit = 2
				}
			case 1:
				g.Shape = cluster.Shape{NodesMin: 2, NodesMax: 2, GPUsPerNode: min(size, 2)}
			case 2:
				g.Shape = cluster.Shape{NodesMin: 1, NodesMax: 2, GPUsPerNode: min(size, 2)}
			default:
				g.Shape = cluster.Shape{NodesMin: 1, NodesMax: 1, GPUsPerNode: size}
			}
			g.Shape.CPUsPerGPU = rapid.IntRange(0, 2).Draw(t, "cpus per gpu")
			if g.Shape.GPUsPerNode > 0 && g.Shape.NodesMax > 1 && rapid.IntRange(0, 3).Draw(t, "total") == 0 {
				g.Shape.CPUs = rapid.IntRange(1, 6).Draw(t, "total cpus")
			}
			g.Shape.Type = rapid.SampledFrom([]string{"", "", "", "a", "b"}).Draw(t, "type")
			g.Shape.Exclusive = rapid.IntRange(0, 7).Draw(t, "exclusive") == 0
			if rapid.IntRange(0, 2).Draw(t, "speeds") == 0 {
				g.Faster = rapid.SampledFrom(speeds).Draw(t, "faster")
			}
			if rapid.Bool().Draw(t, "sensitive") {
				speed := []float64{1, 1, .8, .5}
				g.Rate = func(gpus int, l cluster.Level) float64 { return math.Pow(float64(gpus), .9) * speed[l] }
			}
			b.Gangs = append(b.Gangs, g)
		}
		bids = append(bids, b)
	}
	return nodes, bids
}

// valuation draws rho as a function: concave, convex up to a point as live bids
// are, worth nothing below a threshold, or infinite without GPUs.
func valuation(t *rapid.T) func(rate, lost float64) float64 {
	work := rapid.Float64Range(1, 100).Draw(t, "work")
	ideal := rapid.Float64Range(1, 50).Draw(t, "ideal")
	switch rapid.IntRange(0, 3).Draw(t, "valuation") {
	case 0:
		return func(rate, lost float64) float64 { return (10 + (work+lost)/(rate+0.5)) / ideal }
	case 1:
		return func(rate, lost float64) float64 { return max(20-rate-work/50, 2) / ideal }
	case 2:
		return func(rate, lost float64) float64 {
			if rate < 3 {
				return 5 / ideal
			}
			return (1 + 2/rate) / ideal
		}
	}
	return func(rate, lost float64) float64 { return work / rate / ideal }
}

// oracle is the dumb solver: every way to serve each app a first part of its
// ladder, each gang on every set of nodes that can take it, the slow way.
type oracle struct {
	nodes []Node
	bids  []Bid
	skip  int
	best  [2]float64 // apps that end at all, then the sum of the others' values
}

func (o *oracle) solve() float64 {
	o.best = [2]float64{-1, 0}
	o.app(0, 0, 0)
	return o.best[1]
}

// ladder is the app's gangs that fit alone, and their growth.
func (o *oracle) ladder(b *Bid) (out [][2]int) {
	for i := range b.Gangs {
		fits := false
		o.places(&b.Gangs[i], max(b.Gangs[i].Shape.NodesMin, 1), func([]cluster.Share) { fits = true })
		if fits {
			out = append(out, [2]int{i, 0})
		}
	}
	for _, st := range slices.Clone(out) {
		g := &b.Gangs[st[0]]
		for n := 2; growing[g.ID] && n <= min(g.Shape.NodesMax, len(o.nodes)); n++ {
			if g.rate(n*g.Shape.GPUsPerNode, cluster.Rack) <= g.rate((n-1)*g.Shape.GPUsPerNode, cluster.Rack) {
				break
			}
			out = append(out, [2]int{st[0], n})
		}
	}
	return out
}

func (o *oracle) app(i, finite int, sum float64) {
	if i == len(o.bids) {
		if float64(finite) > o.best[0] || float64(finite) == o.best[0] && sum > o.best[1] {
			o.best = [2]float64{float64(finite), sum}
		}
		return
	}
	if i == o.skip {
		o.app(i+1, finite, sum)
		return
	}
	b := &o.bids[i]
	ladder := ladders[b.App]
	on := make([][]cluster.Share, len(b.Gangs))
	var visit func(k int)
	visit = func(k int) {
		rate := b.Base
		for g, shares := range on {
			if len(shares) > 0 {
				n := 0
				for _, s := range shares {
					n += s.GPUs
				}
				if spilling(&b.Gangs[g]) {
					n = b.Gangs[g].Shape.Count()
				}
				rate += b.Gangs[g].rate(n, cluster.SpanOf(shares, o.rack)) * times(&b.Gangs[g], shares)
			}
		}
		w := b.Weight
		if w == 0 {
			w = 1
		}
		if rho := b.Rho(rate, 0); math.IsInf(rho, 1) {
			o.app(i+1, finite, sum)
		} else {
			o.app(i+1, finite+1, sum-w*math.Log(rho))
		}
		if k == len(ladder) {
			return
		}
		gi, grow := ladder[k][0], ladder[k][1]
		g := &b.Gangs[gi]
		if grow > 0 {
			for n := range o.nodes {
				if o.canTake(g, n, g.Shape.GPUsPerNode, grow) && !slices.ContainsFunc(on[gi], func(s cluster.Share) bool { return s.Node == o.nodes[n].Name }) {
					save := on[gi]
					undo := o.take(g, n, g.Shape.GPUsPerNode, grow)
					on[gi] = append(slices.Clone(save), cluster.Share{Node: o.nodes[n].Name, GPUs: g.Shape.GPUsPerNode})
					visit(k + 1)
					on[gi] = save
					undo()
				}
			}
			return
		}
		o.places(g, max(g.Shape.NodesMin, 1), func(shares []cluster.Share) {
			on[gi] = shares
			visit(k + 1)
			on[gi] = nil
		})
	}
	visit(0)
}

// times is how much faster a gang is on these nodes.
func times(g *Gang, on []cluster.Share) float64 {
	best := 1.0
	for _, f := range g.Faster {
		if !slices.ContainsFunc(on, func(s cluster.Share) bool { return !f.Scope.names[s.Node] }) {
			best = max(best, f.Times)
		}
	}
	return best
}

// ladders holds each app's ladder on the empty offer, growing the gangs that are
// faster on one more node than they ask for.
var (
	ladders map[string][][2]int
	growing map[string]bool
)

// spilling says whether a gang may take more nodes only for its CPUs.
func spilling(g *Gang) bool {
	sh := &g.Shape
	return sh.GPUsPerNode > 0 && sh.CPUs > 0 && sh.NodesMax != max(sh.NodesMin, 1) && !growing[g.ID]
}

func (o *oracle) rack(name string) string {
	for _, n := range o.nodes {
		if n.Name == name {
			return n.Rack
		}
	}
	return ""
}

// canTake and take are the rules of a node, said once more in the plainest way.
func (o *oracle) canTake(g *Gang, n, gpus, nodes int) bool {
	nd := &o.nodes[n]
	free := 0
	for _, t := range nd.GPUs {
		if g.Shape.Type == "" || g.Shape.Type == t.Type {
			free += t.Total
		}
	}
	return min(free, nd.Real) >= gpus && (nd.CPUs < 0 || nd.CPUs >= cpusOf(g, gpus, nodes)) &&
		(g.Scope == nil || g.Scope.names[nd.Name]) && (!g.Shape.Exclusive || nd.Idle)
}

func cpusOf(g *Gang, gpus, nodes int) int {
	if growing[g.ID] {
		nodes = max(g.Shape.NodesMin, 1)
	}
	return max(g.Shape.CPUsPerGPU*gpus, (g.Shape.CPUs+nodes-1)/nodes, 1)
}

func (o *oracle) take(g *Gang, n, gpus, nodes int) (undo func()) {
	was := o.nodes[n]
	was.GPUs = slices.Clone(was.GPUs)
	nd := &o.nodes[n]
	nd.GPUs = slices.Clone(nd.GPUs)
	for k := range nd.GPUs { // those without a type get any that typed ones leave
		if nd.GPUs[k].Type == g.Shape.Type {
			nd.GPUs[k].Total -= gpus
		}
	}
	nd.Real -= gpus
	if nd.CPUs >= 0 {
		nd.CPUs -= cpusOf(g, gpus, nodes)
	}
	if nd.Idle = false; g.Shape.Exclusive {
		nd.GPUs = nil
	}
	return func() { o.nodes[n] = was }
}

// places yields every set of nodes and every split for a gang on its fewest
// nodes, or, for a split gang, on any number.
func (o *oracle) places(g *Gang, least int, yield func([]cluster.Share)) {
	var visit func(n int, on []cluster.Share, sum, nodes int)
	visit = func(n int, on []cluster.Share, sum, nodes int) {
		if len(on) == nodes {
			if g.Shape.GPUsPerNode > 0 || sum == g.Shape.GPUs {
				yield(slices.Clone(on))
			}
			return
		}
		if n == len(o.nodes) {
			return
		}
		visit(n+1, on, sum, nodes)
		for gpus := 1; gpus <= 4; gpus++ {
			if g.Shape.GPUsPerNode == 0 && gpus%max(g.Shape.Unit, 1) != 0 {
				continue
			}
			if g.Shape.GPUsPerNode > 0 && gpus != g.Shape.GPUsPerNode || g.Shape.GPUsPerNode == 0 && sum+gpus > g.Shape.GPUs {
				continue
			}
			if o.canTake(g, n, gpus, nodes) {
				undo := o.take(g, n, gpus, nodes)
				visit(n+1, append(on, cluster.Share{Node: o.nodes[n].Name, GPUs: gpus}), sum+gpus, nodes)
				undo()
			}
		}
	}
	most := least
	if g.Shape.GPUsPerNode == 0 || spilling(g) {
		most = len(o.nodes)
	}
	if g.Shape.NodesMax > 0 {
		most = min(most, max(g.Shape.NodesMax, least))
	}
	for nodes := least; nodes <= most; nodes++ {
		visit(0, nil, 0, nodes)
	}
}

func newOracle(nodes []Node, bids []Bid) *oracle {
	o := &oracle{nodes: slices.Clone(nodes), bids: bids, skip: -1}
	ladders, growing = map[string][][2]int{}, map[string]bool{}
	for i := range bids {
		for k := range bids[i].Gangs {
			g := &bids[i].Gangs[k]
			per, n := g.Shape.GPUsPerNode, max(g.Shape.NodesMin, 1)
			if per == 0 || n >= g.Shape.NodesMax || g.Rate == nil || g.Rate((n+1)*per, cluster.Rack) <= g.Rate(n*per, cluster.Rack) {
				continue
			}
			growing[g.ID] = true // on as many nodes as it asks for, alone
			fits := false
			o.places(g, n, func([]cluster.Share) { fits = true })
			growing[g.ID] = fits
		}
	}
	for i := range bids {
		ladders[bids[i].App] = o.ladder(&bids[i])
	}
	return o
}

// finiteSum is the result's welfare without the apps that never end.
func finiteSum(res *Result) float64 {
	var sum float64
	for i, d := range res.model.bidders {
		if rho := res.packing.rho(i); !math.IsInf(rho, 1) {
			sum += d.valueOf(rho)
		}
	}
	return sum
}

func TestExactAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := small(t)
		o := newOracle(nodes, bids)
		want := o.solve()
		res := Run(NewSpace(nodes), bids)
		if got := finiteSum(&res); !res.Exact || math.Abs(got-want) > 1e-6 {
			t.Fatalf("welfare %.9g (exact %v, bound %.9g), the oracle finds %.9g", got, res.Exact, res.prices.bound, want)
		}
	})
}

// TestBoundAndPayments: prices bound what the oracle finds, with and without
// each winner, and each payment's bracket holds the true one.
func TestBoundAndPayments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := small(t)
		for i := range bids { // the oracle sums only finite values
			rho := bids[i].Rho
			bids[i].Rho = func(rate, lost float64) float64 { return min(rho(rate, lost), 1e3) }
		}
		o := newOracle(nodes, bids)
		want := o.solve()
		m := newModel(NewSpace(nodes), bids)
		pr, p, _ := m.solve(0)
		if pr.bound < want-1e-9 {
			t.Fatalf("the prices say at most %.9g, the oracle finds %.9g", pr.bound, want)
		}
		if p.welfare > want+1e-9 {
			t.Fatalf("the packing is worth %.9g, the oracle finds %.9g", p.welfare, want)
		}
		rough := m.payments(pr, p, false)
		for i := range bids {
			if p.k[i] == 0 {
				continue
			}
			o.skip = i
			c := math.Exp(min(p.welfare-p.worth[i]-o.solve(), 0) / m.bidders[i].weight)
			if b := rough[i]; b.low > c*(1+1e-6) || b.high < c*(1-1e-6) {
				t.Fatalf("%s pays %.9g, the bracket says %.9g to %.9g", bids[i].App, c, b.low, b.high)
			}
		}
	})
}

// TestExactPayments: in a small round the bracket closes on the oracle's c_i.
func TestExactPayments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := small(t)
		for i := range bids {
			rho := bids[i].Rho
			bids[i].Rho = func(rate, lost float64) float64 { return min(rho(rate, lost), 1e3) }
		}
		o := newOracle(nodes, bids)
		res := Run(NewSpace(nodes), bids)
		for i := range bids {
			if res.packing.k[i] == 0 {
				continue
			}
			o.skip = i
			c := math.Exp(min(res.Welfare-res.packing.worth[i]-o.solve(), 0) / res.model.bidders[i].weight)
			if b := res.pay[i]; math.Abs(b.high-c) > 1e-6*c || math.Abs(b.low-c) > 1e-6*c {
				t.Fatalf("%s pays %.9g to %.9g, the oracle says %.9g", bids[i].App, b.low, b.high, c)
			}
		}
	})
}

// TestProofs: every round's proof passes, also after a trip through JSON.
func TestProofs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := small(t)
		res := Run(NewSpace(nodes), bids)
		raw, err := json.Marshal(res.Proof())
		if err != nil {
			t.Fatal(err)
		}
		var p Proof
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		v, err := Verify(&p)
		if err != nil {
			t.Fatal(err)
		}
		if v.Gap() < -1e-9 || math.Abs(v.Welfare-res.Welfare) > 1e-6*(1+math.Abs(v.Welfare)) {
			t.Fatalf("verdict %+v, the round says welfare %g", v, res.Welfare)
		}
	})
}
