// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"

	"themis/core/cluster"
)

// PlaceAll places all the gangs, or none of them, in the order given; those that
// start together, the choosiest first.
func (s *Space) PlaceAll(gangs []Gang) []Placement {
	specs := make([]spec, len(gangs))
	order := make([]int, len(gangs))
	for i := range gangs {
		specs[i], order[i] = s.read(&gangs[i]), i
	}
	for from := 0; from < len(gangs); {
		n := groupLen(gangs, from)
		slices.SortStableFunc(order[from:from+n], func(x, y int) int { return choosier(&specs[x], &specs[y]) })
		from += n
	}
	out := make([]Placement, len(gangs))
	var taken []hold
	apart := map[string][]int32{}
	for _, i := range order {
		sp := &specs[i]
		on := s.quickest(sp, apart[sp.g.Group])
		if on == nil {
			for k := range taken {
				s.give(&taken[k])
			}
			return nil
		}
		on = slices.Clone(on)
		for k, sh := range on {
			taken = append(taken, s.take(sp, sh, len(on)))
			on[k] = taken[len(taken)-1].share
			if g := sp.g.Group; g != "" {
				apart[g] = append(apart[g], sh.node)
			}
		}
		out[i] = s.placement(sp, on)
	}
	return out
}

// choosier compares two gangs that start together by how few places they have.
func choosier(x, y *spec) int {
	width := func(sp *spec) int {
		if sp.scope == nil {
			return math.MaxInt
		}
		n := 0
		for _, ok := range sp.scope {
			if ok {
				n++
			}
		}
		return n
	}
	return cmp.Or(cmp.Compare(len(y.held), len(x.held)), cmp.Compare(len(y.required), len(x.required)),
		cmp.Compare(width(x), width(y)), cmp.Compare(y.typ, x.typ), cmp.Compare(y.sh.Count(), x.sh.Count()))
}

// Widen places a gang whose NodesMax allows it on as many nodes as are free.
func (s *Space) Widen(g *Gang, have Placement) Placement {
	if g.Shape.GPUsPerNode == 0 || g.Shape.NodesMax <= len(have.On) {
		return have
	}
	sp := s.read(g)
	old := make([]share, len(have.On))
	for i, sh := range have.On {
		old[i] = share{s.index[sh.Node], sh.GPUs, sh.Slots}
	}
	avoid := make([]int32, len(old))
	for i, sh := range old {
		avoid[i] = sh.node
	}
	more := old
	if v := sp.set(old); v < len(sp.faster) {
		sp = *sp.within(v) // slower nodes would slow it down
	}
	for n := g.Shape.NodesMax; n > len(old); n-- {
		if on := s.tightest(&sp, n-len(old), avoid); on != nil {
			for _, sh := range on {
				h := s.take(&sp, sh, n)
				more = append(more, h.share)
			}
			break
		}
	}
	return s.placement(&sp, more)
}

func (s *Space) placement(sp *spec, on []share) Placement {
	p := Placement{Gang: sp.g.ID, On: make([]cluster.Share, len(on)), Level: s.level(on)}
	var gpus int
	for i, sh := range on {
		p.On[i] = cluster.Share{Node: s.names[sh.node], GPUs: sh.gpus, Slots: sh.in}
		gpus += sh.gpus
	}
	p.Rate = sp.g.rate(sp.counted(gpus), p.Level) * sp.times(sp.set(on))
	return p
}

// counted is how many of a gang's GPUs speed it up: not those of nodes that it
// takes for their CPUs alone.
func (sp *spec) counted(gpus int) int {
	if sp.spills {
		return sp.sh.Count()
	}
	return gpus
}

// level is how far apart the shares are.
func (s *Space) level(on []share) cluster.Level {
	switch len(on) {
	case 0:
		return cluster.Machine
	case 1:
		return on[0].in.Level()
	}
	first := s.cells[on[0].node].rack
	for _, sh := range on[1:] {
		if first < 0 || s.cells[sh.node].rack != first {
			return cluster.Cluster
		}
	}
	return cluster.Rack
}

// find chooses the tightest place for a gang, none of it on the nodes to
// avoid; nil if there is none. A gang that needs one node gets the fullest one
// that can hold it; one that needs several prefers a single rack, that with more nodes
// too if it is faster in one. Ties go to the first node in the space's order.
func (s *Space) find(sp *spec, avoid []int32) []share {
	if sp.never {
		return nil
	}
	if len(sp.held) > 0 {
		for _, h := range sp.held {
			if !s.holds(sp, h.node, h.gpus, len(sp.held)) {
				return nil
			}
		}
		return sp.held
	}
	lo, hi := fewest(sp), sp.sh.NodesMax
	if hi == 0 {
		hi = mostNodes(sp.sh, lo)
	}
	if sp.sh.GPUsPerNode > 0 && !sp.spills {
		hi = lo
	}
	hi = min(hi, len(s.cells))
	on := s.tightest(sp, lo, avoid)
	if len(on) == 1 {
		return on
	}
	for n := lo; sp.nearer && n <= hi; n++ {
		if in := s.inRack(sp, n, avoid); in != nil {
			return in
		}
	}
	for n := lo + 1; on == nil && n <= hi; n++ {
		on = s.tightest(sp, n, avoid)
	}
	return on
}

func fewest(sp *spec) int { return max(sp.sh.NodesMin, len(sp.required), 1) }

// mostNodes bounds the nodes that a gang without a limit of its own may need:
// its GPUs or CPUs may not fit on fewer.
func mostNodes(sh cluster.Shape, lo int) int {
	if sh.GPUsPerNode == 0 {
		return max(sh.GPUs/sh.Split(), lo)
	}
	return max(sh.CPUs, lo)
}

// tightest chooses n nodes for the gang, in one rack if any holds it.
func (s *Space) tightest(sp *spec, n int, avoid []int32) []share {
	if n == 1 && len(sp.required) == 0 {
		return s.fullest(sp, avoid)
	}
	if on := s.inRack(sp, n, avoid); on != nil {
		return on
	}
	return s.choose(sp, s.candidates(sp, n, 0, int32(len(s.cells)), avoid), n)
}

// inRack chooses n nodes of one rack, of that which has least left for such gangs.
func (s *Space) inRack(sp *spec, n int, avoid []int32) (best []share) {
	if n == 1 {
		return nil
	}
	least := math.MaxInt
	for _, r := range s.racks {
		from := s.candidates(sp, n, r[0], r[1], avoid)
		if on := s.choose(sp, from, n); on != nil {
			if left := s.leftover(from); left < least {
				best, least = on, left
			}
		}
	}
	return best
}

// fullest is the one node that the gang fits best: with the fewest GPUs that
// would have to be taken from a running job, then with a slot for it, if it is
// faster so, then with the fewest others that
// are of no more use once their CPUs or memory are gone, then with the fewest
// free, the fewest CPUs and the least memory.
func (s *Space) fullest(sp *spec, avoid []int32) []share {
	want := int32(sp.sh.GPUsPerNode)
	if want <= 0 {
		want = int32(sp.sh.GPUs)
	}
	w := sp.need(int(want), 1)
	best, least := int32(-1), fit{math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32}
	for n := range s.free {
		f := s.free[n]
		if f < want || f > least.free && least.lacks == 0 && least.far == 0 && least.strands == 0 {
			continue
		}
		c := &s.cells[n]
		now := fit{max(want-int32(c.real), 0), sp.far(c, int(want)), s.strands(c, f, &w), f}
		switch now.compare(least) {
		case +1:
			continue
		case 0:
			if best >= 0 && cmp.Or(cmp.Compare(c.cpus, s.cells[best].cpus), cmp.Compare(c.mem, s.cells[best].mem)) >= 0 {
				continue
			}
		}
		if sp.scope != nil && !sp.scope[n] || !s.holds(sp, int32(n), int(want), 1) || slices.Contains(avoid, int32(n)) {
			continue
		}
		best, least = int32(n), now
	}
	if best < 0 {
		return nil
	}
	return []share{{node: best, gpus: int(want)}}
}

// snug says whether a node holds one more such gang at no cost to others.
func (s *Space) snug(sp *spec, sh share) bool {
	w := sp.need(sh.gpus, 1)
	c := &s.cells[sh.node]
	return len(sp.held)+len(sp.required) == 0 && (sp.scope == nil || sp.scope[sh.node]) && c.real >= sh.gpus &&
		s.holds(sp, sh.node, sh.gpus, 1) && sp.far(c, sh.gpus) == 0 && s.strands(c, s.free[sh.node], &w) == 0
}

// fit is how well a gang fits a node; less is better.
type fit struct{ lacks, far, strands, free int32 }

func (x fit) compare(y fit) int {
	return cmp.Or(cmp.Compare(x.lacks, y.lacks), cmp.Compare(x.far, y.far), cmp.Compare(x.strands, y.strands), cmp.Compare(x.free, y.free))
}

// strands counts the GPUs of a node that nobody in the round could use any more
// beside those that the gang takes.
func (s *Space) strands(c *cell, free int32, w *Need) int32 {
	if c.cpus < 0 && c.mem < 0 || s.lean == (lean{}) {
		return 0
	}
	left := float64(free) - float64(w.GPUs)
	if (c.cpus < 0 || float64(c.cpus-w.CPUs) >= s.lean.cpus*left) && (c.mem < 0 || float64(c.mem-w.MemMiB) >= s.lean.mem*left) {
		return 0 // plenty
	}
	before := s.lean.most(float64(free), c.cpus, c.mem)
	after := s.lean.most(left, max(c.cpus-w.CPUs, min(c.cpus, 0)), max(c.mem-w.MemMiB, min(c.mem, 0)))
	return int32(before) - int32(after) - int32(w.GPUs)
}

// candidates lists the nodes in a range that could be one of n for the gang,
// with the GPUs that they could take.
func (s *Space) candidates(sp *spec, n int, from, to int32, avoid []int32) []share {
	var out []share
	for i := from; i < to; i++ {
		if s.free[i] == 0 || sp.scope != nil && !sp.scope[i] || slices.Contains(avoid, i) {
			continue
		}
		if per := sp.sh.GPUsPerNode; per > 0 {
			if s.holds(sp, i, per, n) {
				out = append(out, share{node: i, gpus: per})
			}
			continue
		}
		// Leave something for each other node.
		if got := s.most(sp, i, sp.sh.GPUs-(n-1)*sp.sh.Split(), n); got > 0 {
			out = append(out, share{node: i, gpus: got})
		}
	}
	return out
}

func (s *Space) leftover(on []share) int {
	var free int
	for _, sh := range on {
		free += int(s.free[sh.node])
	}
	return free
}

// choose picks n of the candidates, those that the gang requires before all:
// the fullest nodes for a fixed number of GPUs each, the emptiest for a total
// that must be reached.
func (s *Space) choose(sp *spec, from []share, n int) []share {
	if len(from) < n {
		return nil
	}
	must := func(sh share) int {
		if slices.Contains(sp.required, sh.node) {
			return 0
		}
		return 1
	}
	lacks := func(sh share) int { return max(sh.gpus-s.cells[sh.node].real, 0) }
	each := sp.sh.GPUsPerNode > 0
	if n == 1 && !each {
		from = slices.DeleteFunc(from, func(c share) bool { return c.gpus < sp.sh.GPUs })
	}
	slices.SortStableFunc(from, func(a, b share) int {
		if each || n == 1 {
			return cmp.Or(cmp.Compare(must(a), must(b)), cmp.Compare(lacks(a), lacks(b)), cmp.Compare(s.free[a.node], s.free[b.node]))
		}
		return cmp.Or(cmp.Compare(must(a), must(b)), cmp.Compare(b.gpus, a.gpus), cmp.Compare(lacks(a), lacks(b)))
	})
	if len(from) < n {
		return nil
	}
	on := from[:n]
	for _, r := range sp.required {
		if !slices.ContainsFunc(on, func(c share) bool { return c.node == r }) {
			return nil
		}
	}
	if each {
		return on
	}
	return split(on, sp.sh.GPUs, sp.sh.Split())
}

// split divides a total over nodes that can take what their shares say, at
// least one unit each; nil if they cannot take it all.
func split(on []share, total, unit int) []share {
	out := make([]share, 0, len(on))
	for i, c := range on {
		take := min(c.gpus, total-(len(on)-1-i)*unit)
		if take <= 0 {
			return nil
		}
		out = append(out, share{node: c.node, gpus: take})
		total -= take
	}
	if total > 0 {
		return nil
	}
	return out
}

// TightestFirst sorts gangs in the order in which packing serves them well:
// those that run already stay, then the largest, of equals the choosiest, then
// the one that loses most by spreading.
func TightestFirst(gangs []Gang) {
	slices.SortStableFunc(gangs, func(a, b Gang) int { return tighter(&a, &b) })
}

func tighter(g, h *Gang) int {
	return cmp.Or(
		cmp.Compare(len(h.Held), len(g.Held)),
		cmp.Compare(h.Shape.Count(), g.Shape.Count()),
		cmp.Compare(choosy(h), choosy(g)),
		cmp.Compare(spread(h), spread(g)))
}

// choosy counts what restricts a gang's choice of nodes.
func choosy(g *Gang) int {
	n := len(g.Required)
	if g.Scope != nil {
		n++
	}
	if g.Shape.Type != "" {
		n++
	}
	return n
}

// spread is what a gang loses by leaving one slot and one machine, or its fastest nodes.
func spread(g *Gang) float64 {
	n := g.Shape.Count()
	loss := g.rate(n, cluster.Slot) - g.rate(n, cluster.Rack)
	if len(g.Faster) > 0 {
		loss += (g.Faster[0].Times - 1) * g.rate(n, cluster.Machine)
	}
	return loss
}
