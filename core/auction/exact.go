// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"math"
	"slices"
)

// tie is the difference in welfare that is none.
const tie = 1e-9

// explore searches every allocation of a small round, depth first, for one
// better than best. A branch is cut where the bound less what its bidders fall
// short of their best answers cannot reach the best. It reports whether the
// search came to an end within the visits allowed: then the result is optimal.
func (m *model) explore(pr *prices, best *packing, visits int) bool {
	e := &explorer{p: m.newPacking(), pr: pr, best: best, visits: visits}
	e.search = m.newSearch(e.p, pr)
	for i, d := range m.bidders {
		n := len(d.steps)
		after := make([]float64, n+1) // best surplus with at least k steps
		for k := n; k >= 0; k-- {
			after[k] = d.surplusAt(k, e.cost[i], pr)
			if k < n {
				after[k] = max(after[k], after[k+1])
			}
		}
		e.after = append(e.after, after)
	}
	e.bidder(0, 0)
	return e.visits > 0
}

// surplusAt is the most that k steps are worth less their price.
func (d *bidder) surplusAt(k int, cost []float64, pr *prices) float64 {
	top := math.Inf(-1)
	for r, v := range d.value[k] {
		s := v - cost[k]
		if r > 0 {
			s -= d.more(pr, r)
		}
		top = max(top, s)
	}
	return top
}

type explorer struct {
	*search
	p      *packing
	pr     *prices
	best   *packing
	after  [][]float64
	visits int
}

// bidder decides for one bidder after another.
func (e *explorer) bidder(i int, regret float64) {
	if e.visits--; e.visits <= 0 || e.pr.bound-regret <= e.best.welfare+tie {
		return
	}
	if i == len(e.m.bidders) {
		if e.p.welfare > e.best.welfare+tie {
			e.best.copy(e.p)
		}
		return
	}
	e.step(i, regret)
}

// step tries all places of the bidder's next step, then stopping here.
func (e *explorer) step(i int, regret float64) {
	d, k := e.m.bidders[i], e.p.k[i]
	if e.visits--; e.visits <= 0 {
		return
	}
	if k < len(d.steps) && e.pr.bound-regret-(e.pr.surplus[i]-e.after[i][k+1]) > e.best.welfare+tie {
		e.gang(i, 0, nil, func() {
			e.p.account(i, k+1)
			e.step(i, regret)
		})
	}
	if k == 0 || e.p.worth[i] > d.value[0][0] { // else nothing at all is as good
		e.bidder(i+1, regret+max(e.regret(i), 0))
	}
}

// gang tries all places of the n-th gang of the bidder's next step.
func (e *explorer) gang(i, n int, avoid []int32, then func()) {
	d := e.m.bidders[i]
	st := &d.steps[e.p.k[i]]
	if n == len(st.gangs) {
		mark := e.p.mark()
		then()
		e.p.rollback(mark)
		return
	}
	gi := st.gangs[n]
	sp := &d.specs[gi]
	var have []share
	if st.nodes > 0 {
		have = e.p.at[i][gi].shares()
	}
	e.places(sp, st.nodes, e.first(i, gi), have, avoid, func(on []share) {
		mark := e.p.mark()
		e.p.move(ref{i, gi}, slices.Clone(on), len(on))
		more := avoid
		for _, sh := range on {
			more = append(more[:len(more):len(more)], sh.node)
		}
		e.gang(i, n+1, more, then)
		e.p.rollback(mark)
	})
}

// first is the node from which a gang's places are tried: like gangs of a bidder
// go onto nodes in one order only.
func (e *explorer) first(i, gi int) int32 {
	d, k := e.m.bidders[i], e.p.k[i]
	if k == 0 || d.steps[k].nodes > 0 || d.steps[k-1].nodes > 0 {
		return 0
	}
	last := d.steps[k-1].gangs[0]
	if on := e.p.at[i][last].holds; len(on) == 1 && d.like(e.m, gi, last) {
		return on[0].node
	}
	return 0
}

// places yields every place of a gang, of those that differ only by equal
// nodes one.
func (e *explorer) places(sp *spec, nodes int, from int32, have []share, avoid []int32, yield func([]share)) {
	s := e.p.s
	if sp.never {
		return
	}
	if len(sp.held) > 0 {
		if on := s.find(sp, avoid); on != nil {
			yield(on)
		}
		return
	}
	lo, hi := fewest(sp), sp.sh.NodesMax
	if hi == 0 {
		hi = mostNodes(sp.sh, lo)
	}
	if nodes > 0 {
		lo, hi = nodes, nodes
	}
	for n := lo; n <= min(hi, len(s.cells)); n++ {
		e.choose(sp, n, from, have, avoid, yield)
		if sp.sh.GPUsPerNode > 0 && !sp.spills {
			break // more nodes are another step
		}
	}
}

func (e *explorer) choose(sp *spec, n int, from int32, on []share, avoid []int32, yield func([]share)) {
	s := e.p.s
	if e.visits <= 0 {
		return
	}
	left := n - len(on)
	if left == 0 {
		for _, r := range sp.required {
			if !slices.ContainsFunc(on, func(c share) bool { return c.node == r }) {
				return
			}
		}
		if sp.sh.GPUsPerNode > 0 || sum(on) == sp.sh.GPUs {
			yield(on)
		}
		return
	}
	for c := from; c < int32(len(s.cells)); c++ {
		if sp.scope != nil && !sp.scope[c] || slices.Contains(avoid, c) || slices.ContainsFunc(on, func(h share) bool { return h.node == c }) || e.twin(sp, from, c, on, avoid) {
			continue
		}
		sizes, unit := [2]int{sp.sh.GPUsPerNode, sp.sh.GPUsPerNode}, sp.sh.Split()
		if sp.sh.GPUsPerNode == 0 {
			rest := sp.sh.GPUs - sum(on)
			sizes = [2]int{unit, rest - (left-1)*unit}
			if left == 1 {
				sizes[0] = rest
			}
		}
		for g := sizes[1]; g >= max(sizes[0], 1); g -= unit {
			if e.visits--; e.visits > 0 && s.holds(sp, c, g, n) {
				e.choose(sp, n, c+1, append(on[:len(on):len(on)], share{node: c, gpus: g}), avoid, yield)
			}
		}
	}
}

// twin says whether an earlier node of the range is just like c.
func (e *explorer) twin(sp *spec, from, c int32, on []share, avoid []int32) bool {
	s := e.p.s
	if len(sp.required) > 0 {
		return false
	}
	for b := c - 1; b >= from; b-- {
		x, y := &s.cells[b], &s.cells[c]
		if x.rack != y.rack {
			return false
		}
		if slices.Contains(avoid, b) || slices.ContainsFunc(on, func(h share) bool { return h.node == b }) {
			continue
		}
		if x.kind == y.kind && x.free == y.free && x.room == y.room && s.free[b] == s.free[c] && x.cpus == y.cpus && x.mem == y.mem && x.real == y.real && x.idle == y.idle && (x.jobs > 0) == (y.jobs > 0) && e.same(b, c) {
			return true
		}
	}
	return false
}

// same says whether two nodes are in the same scopes and named by the same
// gangs.
func (e *explorer) same(b, c int32) bool {
	for _, ok := range e.p.s.scopes {
		if ok[b] != ok[c] {
			return false
		}
	}
	return !e.m.named[b] && !e.m.named[c]
}

// copy makes p the same allocation as q.
func (p *packing) copy(q *packing) {
	for i := range p.at {
		for gi := range p.at[i] {
			p.vacate(ref{i, gi})
		}
	}
	for i := range q.at {
		for gi := range q.at[i] {
			sp := &q.at[i][gi]
			c := spot{rate: sp.rate, holds: slices.Clone(sp.holds)}
			for h := range c.holds {
				p.s.again(&c.holds[h])
				p.who[c.holds[h].node] = append(p.who[c.holds[h].node], ref{i, gi})
			}
			p.at[i][gi] = c
			p.units[i] += units(c.rate)
		}
	}
	copy(p.k, q.k)
	copy(p.worth, q.worth)
	p.welfare = q.welfare
	p.journal = p.journal[:0]
}
