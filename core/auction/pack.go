// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"slices"

	"themis/core/cluster"
)

// packing is an allocation on real nodes. Every change goes through a journal,
// so that a move that does not pay is undone.
type packing struct {
	m       *model
	s       *Space
	k       []int    // steps served, by bidder
	at      [][]spot // by bidder, by gang
	who     [][]ref  // by node: the gangs on it
	worth   []float64
	units   []int64 // rates of its gangs, summed
	welfare float64
	dear    []float64 // prices of gangs, by kind, if known
	plain   []bool    // nodes on which nobody would pay to be; nil: all
	journal []change
}

// spot is where a gang is placed; no holds: nowhere.
type spot struct {
	holds []hold
	rate  float64
}

// ref names a gang of a bidder.
type ref struct{ bidder, gang int }

type change struct {
	ref
	was   spot
	k     int
	worth float64
}

func (m *model) newPacking() *packing {
	n := len(m.bidders)
	p := &packing{m: m, s: m.space.clone(), k: make([]int, n), at: make([][]spot, n),
		who: make([][]ref, len(m.space.cells)), worth: make([]float64, n), units: make([]int64, n)}
	for i, d := range m.bidders {
		p.at[i] = make([]spot, len(d.specs))
		p.worth[i] = d.value[0][0]
		p.welfare += p.worth[i]
	}
	return p
}

// mark and rollback are the journal's.
func (p *packing) mark() int { return len(p.journal) }

func (p *packing) rollback(mark int) {
	for len(p.journal) > mark {
		c := p.journal[len(p.journal)-1]
		p.journal = p.journal[:len(p.journal)-1]
		if c.gang < 0 {
			p.k[c.bidder] = c.k
			p.welfare += c.worth - p.worth[c.bidder]
			p.worth[c.bidder] = c.worth
			continue
		}
		p.vacate(c.ref)
		for i := range c.was.holds {
			h := &c.was.holds[i]
			p.s.again(h)
			p.who[h.node] = append(p.who[h.node], c.ref)
		}
		p.at[c.bidder][c.gang] = c.was
		p.units[c.bidder] += units(c.was.rate)
	}
}

func (p *packing) vacate(r ref) {
	sp := &p.at[r.bidder][r.gang]
	for i := range sp.holds {
		h := &sp.holds[i]
		p.s.give(h)
		list := p.who[h.node]
		at := slices.Index(list, r)
		list[at] = list[len(list)-1]
		p.who[h.node] = list[:len(list)-1]
	}
	p.units[r.bidder] -= units(sp.rate)
	*sp = spot{}
}

// move puts a gang where it is said, or nowhere.
func (p *packing) move(r ref, on []share, nodes int) {
	p.journal = append(p.journal, change{ref: r, was: p.at[r.bidder][r.gang]})
	p.vacate(r)
	if len(on) == 0 {
		return
	}
	d := p.m.bidders[r.bidder]
	sp := spot{holds: make([]hold, len(on))}
	gang := &d.specs[r.gang]
	on = slices.Clone(on)
	for i, sh := range on {
		sp.holds[i] = p.s.take(gang, sh, nodes)
		on[i] = sp.holds[i].share
		p.who[sh.node] = append(p.who[sh.node], r)
	}
	sp.rate = gang.g.rate(gang.counted(sum(on)), p.s.level(on)) * gang.times(gang.set(on))
	p.at[r.bidder][r.gang] = sp
	p.units[r.bidder] += units(sp.rate)
}

// account sets how many steps a bidder is served and what it is worth so.
func (p *packing) account(i, k int) {
	p.journal = append(p.journal, change{ref: ref{i, -1}, k: p.k[i], worth: p.worth[i]})
	d := p.m.bidders[i]
	w := max(d.valueOf(d.rhoOf(p.rate(i), d.lost[k])), -p.m.big)
	if k == 0 {
		w = d.value[0][0]
	}
	p.k[i] = k
	p.welfare += w - p.worth[i]
	p.worth[i] = w
}

// rate is the bidder's speed.
func (p *packing) rate(i int) float64 {
	return p.m.bidders[i].bid.Base + float64(p.units[i])/rateUnit
}

// Rates are summed in whole units, rounded down, so that the same gangs give the
// same sum whatever was tried before, and never more than the bid's option.
const rateUnit = 1 << 30

func units(rate float64) int64 {
	if !(rate > 0) {
		return 0
	}
	return int64(min(rate, 1<<30) * rateUnit)
}

// serve places the bidder's next step, or changes nothing.
func (p *packing) serve(i int) bool {
	d := p.m.bidders[i]
	if p.k[i] == len(d.steps) {
		return false
	}
	st := &d.steps[p.k[i]]
	mark := p.mark()
	var avoid []int32
	for _, gi := range st.gangs {
		on := p.place(i, gi, st, avoid)
		if on == nil {
			p.rollback(mark)
			return false
		}
		p.move(ref{i, gi}, on, len(on))
		if len(st.gangs) > 1 {
			for _, sh := range on {
				avoid = append(avoid, sh.node)
			}
		}
	}
	p.account(i, p.k[i]+1)
	return true
}

// place finds where a step would put a gang.
func (p *packing) place(i, gi int, st *step, avoid []int32) []share {
	sp := &p.m.bidders[i].specs[gi]
	if st.nodes == 0 {
		return p.find(i, gi, avoid)
	}
	on := p.at[i][gi].shares()
	for _, sh := range on {
		avoid = append(avoid, sh.node)
	}
	if v := sp.set(on); v < len(sp.faster) {
		sp = sp.within(v) // slower nodes would slow it down
	}
	if more := p.s.tightest(sp, st.nodes-len(on), avoid); more != nil { // beside what it has
		return append(on, more...)
	}
	return nil
}

func (sp *spot) shares() []share {
	out := make([]share, len(sp.holds))
	for i := range sp.holds {
		out[i] = sp.holds[i].share
	}
	return out
}

// drop takes back the bidder's last step.
func (p *packing) drop(i int) {
	d := p.m.bidders[i]
	st := &d.steps[p.k[i]-1]
	for _, gi := range st.gangs {
		var left []share
		if st.drop >= 0 {
			left = p.at[i][gi].shares()
			left = left[:len(left)-1]
		}
		p.move(ref{i, gi}, left, len(left))
	}
	p.account(i, p.k[i]-1)
}

// like says whether two gangs of a bidder may change places.
func (d *bidder) like(m *model, a, b int) bool {
	g, h := &d.bid.Gangs[a], &d.bid.Gangs[b]
	if d.first[a] < 0 || d.first[b] < 0 || g.Group != "" || h.Group != "" || len(g.Held)+len(h.Held)+len(g.Required)+len(h.Required) > 0 {
		return false
	}
	q := d.steps[d.first[a]].add[0]
	if q != d.steps[d.first[b]].add[0] || g.Shape != h.Shape || g.Scope != h.Scope || !slices.Equal(g.Faster, h.Faster) {
		return false
	}
	w, t := m.rates(g, q)
	w2, t2 := m.rates(h, q)
	return w == w2 && t == t2 && d.growth[a] == d.growth[b]
}

// swap lets two gangs of a bidder change places.
func (p *packing) swap(i, a, b int) {
	if a == b {
		return
	}
	on, other := p.at[i][a].shares(), p.at[i][b].shares()
	p.move(ref{i, a}, nil, 0)
	p.move(ref{i, b}, on, len(on))
	p.move(ref{i, a}, other, len(other))
}

// start packs the options that the bidders would choose at the prices, the
// tightest gangs first, and cuts each ladder where a gang found no place.
func (p *packing) start(want []option) {
	type item struct {
		ref
		nodes int
	}
	var items []item
	for i, d := range p.m.bidders {
		nodes := make([]int, len(d.specs))
		for k := range want[i].k {
			for _, gi := range d.steps[k].gangs {
				nodes[gi] = d.steps[k].nodes
			}
		}
		for k := range want[i].k {
			if d.steps[k].nodes == 0 {
				for _, gi := range d.steps[k].gangs {
					items = append(items, item{ref{i, gi}, nodes[gi]})
				}
			}
		}
	}
	gang := func(r ref) *Gang { return &p.m.bidders[r.bidder].bid.Gangs[r.gang] }
	quota := map[int][]int{} // by bidder: gangs that it wants on each faster set
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.nodes, a.nodes), tighter(gang(a.ref), gang(b.ref)))
	})
	last, kind := []share(nil), -1 // where the gang before went, and its kind
	for _, it := range items {
		d := p.m.bidders[it.bidder]
		sp := &d.specs[it.gang]
		var avoid []int32
		if g := sp.g.Group; g != "" {
			for _, gi := range d.steps[d.first[it.gang]].gangs {
				for _, sh := range p.at[it.bidder][gi].shares() {
					avoid = append(avoid, sh.node)
				}
			}
		}
		var on []share
		if it.nodes > 0 {
			on = p.s.tightest(sp, it.nodes, avoid)
		}
		if on == nil && d.mixes != nil && sp.chooses() {
			if quota[it.bidder] == nil {
				quota[it.bidder] = slices.Clone(d.mixes[want[it.bidder].r])
			}
			on = p.s.allotted(sp, quota[it.bidder], avoid)
		}
		if on == nil && sp.kind == kind && len(last) == 1 && p.plain == nil && p.s.snug(sp, last[0]) && len(avoid) == 0 {
			on = last // the fullest node that holds one is the fullest for the next
		}
		if on == nil {
			on = p.find(it.bidder, it.gang, avoid)
		}
		if on != nil {
			p.move(it.ref, on, len(on))
		}
		last, kind = on, sp.kind
	}
	for i := range p.m.bidders {
		p.mend(i, want[i].k)
	}
	p.journal = p.journal[:0]
}

// mend makes the bidder's placed gangs the first steps of its ladder.
func (p *packing) mend(i, want int) {
	d := p.m.bidders[i]
	k := 0
	for ; k < want; k++ {
		st := &d.steps[k]
		if st.nodes > 0 {
			if len(p.at[i][st.gangs[0]].holds) < st.nodes {
				break
			}
			continue
		}
		if !p.complete(i, k, want) {
			break
		}
	}
	for n := k; n < len(d.steps); n++ {
		st := &d.steps[n]
		for _, gi := range st.gangs {
			switch have := len(p.at[i][gi].holds); {
			case have == 0:
			case st.nodes == 0:
				p.move(ref{i, gi}, nil, 0)
			case have >= st.nodes:
				on := p.at[i][gi].shares()[:st.nodes-1]
				p.move(ref{i, gi}, on, len(on))
			}
		}
	}
	p.account(i, k)
}

// complete says whether all gangs of a step are placed, after taking the place
// of a like gang further up the ladder if need be.
func (p *packing) complete(i, k, want int) bool {
	d := p.m.bidders[i]
	for _, gi := range d.steps[k].gangs {
		if len(p.at[i][gi].holds) > 0 {
			continue
		}
		found := false
		for n := want - 1; n > k && !found; n-- {
			if st := &d.steps[n]; st.nodes == 0 && len(st.gangs) == 1 && len(p.at[i][st.gangs[0]].holds) > 0 && d.like(p.m, gi, st.gangs[0]) {
				p.swap(i, gi, st.gangs[0])
				found = true
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// cost is the price of the first k steps, for every k, all gangs wide.
func (d *bidder) cost(p *prices) []float64 {
	out := make([]float64, len(d.steps)+1)
	for i := range d.ladder {
		r := &d.ladder[i]
		each := p.each(r.add, r.drop)
		for k := r.from; k < d.end(i); k++ {
			out[k+1] = out[k] + each
		}
	}
	return out
}

// placements returns where the bidder's gangs are, in its own order.
func (p *packing) placements(i int) []Placement {
	var out []Placement
	for gi := range p.at[i] {
		if on := p.at[i][gi].shares(); len(on) > 0 {
			out = append(out, p.s.placement(&p.m.bidders[i].specs[gi], on))
		}
	}
	return out
}

// tight counts the bidder's gangs whose level is as good as modelled, or names
// their mix.
func (p *packing) tight(i int) int {
	d := p.m.bidders[i]
	switch {
	case d.choice < 0:
		return 0
	case d.mixes != nil:
		return p.mix(i)
	}
	n := 0
	for k := range p.k[i] {
		for at, gi := range d.steps[k].gangs {
			if d.steps[k].add[at] == d.choice && p.s.level(p.at[i][gi].shares()) <= p.m.tightLevel(d.choice) {
				n++
			}
		}
	}
	return n
}

func (m *model) tightLevel(kind int) cluster.Level {
	if m.kinds[kind].Split {
		return cluster.Machine
	}
	return cluster.Rack
}
