// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"
)

// Nodes of several speeds. A gang that is faster on some nodes (GPUs of another
// type) is bid as alternatives: an option says how many of an app's gangs are on
// each of the faster sets, with a kind, and so a price, of its own per set.

// faster is a set of nodes on which a gang is faster.
type faster struct {
	nodes []bool
	times float64
	kind  int // of a gang that is on these nodes, in the model that reads it
}

// faster reads the sets of a gang that has something to choose: those with
// nothing on offer are left out.
func (s *Space) faster(sp *spec) []faster {
	var out []faster
	for _, f := range sp.g.Faster {
		in := s.within(f.Scope)
		some, all := false, true
		for n, ok := range in {
			ok = ok && (sp.scope == nil || sp.scope[n])
			some, all = some || ok && s.has(sp, int32(n)) > 0, all && ok == in[n]
		}
		if !all {
			in = slices.Clone(in)
			for n := range in {
				in[n] = in[n] && sp.scope[n]
			}
		}
		if last := len(out) - 1; some && f.Times > 1 && !math.IsInf(f.Times, 1) && (last < 0 || f.Times < out[last].times && covers(in, out[last].nodes)) {
			out = append(out, faster{nodes: in, times: f.Times, kind: -1})
		}
	}
	return out
}

// covers says whether all of the nodes are of the set.
func covers(set, nodes []bool) bool {
	for n, ok := range nodes {
		if ok && !set[n] {
			return false
		}
	}
	return true
}

// set is the fastest set that has all the nodes; len(sp.faster) if none has.
func (sp *spec) set(on []share) int {
	for v := range sp.faster {
		if !slices.ContainsFunc(on, func(sh share) bool { return !sp.faster[v].nodes[sh.node] }) {
			return v
		}
	}
	return len(sp.faster)
}

func (sp *spec) setOf(n int32) int {
	for v := range sp.faster {
		if sp.faster[v].nodes[n] {
			return v
		}
	}
	return len(sp.faster)
}

// times is how much faster than its Rate the gang is on the set.
func (sp *spec) times(set int) float64 {
	if set < len(sp.faster) {
		return sp.faster[set].times
	}
	return 1
}

// like says whether two sets are the same to a bidder.
func like(a, b faster) bool { return a.kind == b.kind && a.times == b.times }

// within is the gang as one that may be on nodes of the set alone.
func (sp *spec) within(set int) *spec {
	one := *sp
	one.scope, one.faster = sp.faster[set].nodes, nil
	return &one
}

// only is the gang as one that may be on nodes of the set alone, and on none of
// a faster one.
func (sp *spec) only(set int) *spec {
	one := *sp
	one.faster, one.scope = nil, make([]bool, len(sp.faster[0].nodes))
	for n := range one.scope {
		one.scope[n] = sp.setOf(int32(n)) == set && (sp.scope == nil || sp.scope[n])
	}
	return &one
}

// mixes lists how many of so many gangs are on each of so many faster sets,
// those with fewer in all first, so that the mixes of fewer gangs come first and
// all on the fastest set comes last.
func mixes(sets, gangs int) [][]int {
	out := [][]int{}
	mix := make([]int, sets)
	var fill func(v, left int)
	fill = func(v, left int) {
		if v == 0 {
			mix[0] = left
			out = append(out, slices.Clone(mix))
			return
		}
		for n := left; n >= 0; n-- {
			mix[v] = n
			fill(v-1, left-n)
		}
	}
	for all := range gangs + 1 {
		fill(sets-1, all)
	}
	return out
}

// mixesMost bounds the options of an app whose sets are told apart, over all steps.
const mixesMost = 1 << 13

// countMixes is the number of mixes of so many gangs, at most mixesMost+1.
func countMixes(sets, gangs int) int {
	n := 1
	for v := 1; v <= sets; v++ {
		if n = n * (gangs + v) / v; n > mixesMost {
			return mixesMost + 1
		}
	}
	return n
}

// more is what an option costs beyond the price of all its gangs wide.
func (d *bidder) more(p *prices, r int) float64 {
	if d.mixes == nil {
		return float64(r) * (p.tight[d.choice] - p.wide[d.choice])
	}
	var c float64
	for v, n := range d.mixes[r] {
		if n > 0 {
			c += float64(n) * (p.wide[d.sets[v].kind] - p.wide[d.choice])
		}
	}
	return c
}

// mix is the option of what the bidder has been given.
func (p *packing) mix(i int) int {
	d := p.m.bidders[i]
	have := make([]int, len(d.sets))
	for k := range p.k[i] {
		for at, gi := range d.steps[k].gangs {
			if d.steps[k].add[at] != d.choice {
				continue
			}
			if v := d.specs[gi].set(p.at[i][gi].shares()); v < len(have) {
				have[v]++
			}
		}
	}
	return slices.IndexFunc(d.mixes, func(mix []int) bool { return slices.Equal(mix, have) })
}

// preferred lists the sets of nodes for a gang of the bidder's, those first that
// gain most beyond their price.
func (p *packing) preferred(i, gi int) []int {
	d := p.m.bidders[i]
	sp := &d.specs[gi]
	rate, k := p.rate(i)-p.at[i][gi].rate, p.k[i]
	sets := make([]int, len(sp.faster)+1)
	gain := make([]float64, len(sets))
	for v := range sets {
		kind := sp.kind
		if sets[v] = v; v < len(sp.faster) {
			kind = sp.faster[v].kind
		}
		_, best := p.m.rates(sp.g, sp.kind)
		gain[v] = max(d.valueOf(d.rhoOf(rate+best*sp.times(v), d.lost[k])), -p.m.big)
		if p.dear != nil {
			gain[v] -= p.dear[kind]
		}
	}
	slices.SortStableFunc(sets, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
	return sets
}

// chooses says whether a gang is faster on some nodes and not bound to its own.
func (sp *spec) chooses() bool { return len(sp.faster) > 0 && len(sp.held) == 0 }

// find is the best place for a gang: on the set of nodes that is worth most to
// its bidder, if it has a choice.
func (p *packing) find(i, gi int, avoid []int32) []share {
	sp := &p.m.bidders[i].specs[gi]
	switch {
	case sp.chooses():
		for _, v := range p.preferred(i, gi) {
			if on := p.s.find(sp.only(v), avoid); on != nil {
				return on
			}
		}
	case p.plain != nil && len(sp.held) == 0: // leave fast nodes to those who gain by them
		one := *sp
		one.scope = p.plain
		if sp.scope != nil {
			one.scope = make([]bool, len(p.plain))
			for n := range one.scope {
				one.scope[n] = p.plain[n] && sp.scope[n]
			}
		}
		if on := p.s.find(&one, avoid); on != nil {
			return on
		}
	}
	return p.s.find(sp, avoid)
}

// price makes the packing heed these prices.
func (p *packing) price(pr *prices) {
	p.dear, p.plain = pr.wide, nil
	for _, d := range p.m.bidders {
		for _, f := range d.sets {
			if p.dear[f.kind] <= p.dear[d.choice] {
				continue
			}
			if p.plain == nil {
				p.plain = slices.Repeat([]bool{true}, len(p.s.cells))
			}
			for n, in := range f.nodes {
				p.plain[n] = p.plain[n] && !in
			}
		}
	}
}

// quickest is the place of a gang on the fastest nodes that can take it.
func (s *Space) quickest(sp *spec, avoid []int32) []share {
	if sp.chooses() {
		for v := range sp.faster {
			if on := s.find(sp.within(v), avoid); on != nil {
				return on
			}
		}
	}
	return s.find(sp, avoid)
}

// allotted is a place on the fastest set that its bidder still wants gangs on,
// of which it then wants one less; nil if there is none.
func (s *Space) allotted(sp *spec, quota []int, avoid []int32) []share {
	for v := range quota {
		if quota[v] == 0 {
			continue
		}
		if on := s.find(sp.only(v), avoid); on != nil {
			quota[v]--
			return on
		}
	}
	return s.find(sp.only(len(quota)), avoid)
}

// upgrade moves the bidder's gang on the slowest nodes to those that are worth
// most to it, moving or evicting others if need be, and keeps that if the
// welfare rose.
func (s *search) upgrade(i int, near []int) bool {
	d, k := s.m.bidders[i], s.k[i]
	if d.mixes == nil || k == 0 || len(d.steps[k-1].gangs) > 1 || !d.specs[d.steps[k-1].gangs[0]].chooses() {
		return false
	}
	before, mark := s.welfare, s.mark()
	last := d.steps[k-1].gangs[0]
	set := func(gi int) int { return d.specs[gi].set(s.at[i][gi].shares()) }
	slow := last
	for _, st := range d.steps[:k] {
		if gi := st.gangs[0]; set(gi) > set(slow) && d.like(s.m, gi, last) {
			slow = gi
		}
	}
	was := set(slow)
	s.swap(i, slow, last)
	s.drop(i)
	if want := s.preferred(i, last)[0]; want < was {
		if hurt, ok := s.clearFor(i, d.specs[last].only(want)); ok {
			if s.fill(append(hurt, near...)); s.welfare > before+1e-9 {
				s.journal = s.journal[:mark]
				return true
			}
		}
	}
	s.rollback(mark)
	return false
}
