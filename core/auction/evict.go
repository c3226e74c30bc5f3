// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"
)

// clear makes room for the bidder's next step on the nodes where that costs
// least and places it there. It returns who lost a step for it.
func (s *search) clear(i int) (hurt []int, ok bool) {
	d := s.m.bidders[i]
	return s.clearFor(i, &d.specs[d.steps[s.k[i]].gangs[0]])
}

// clearFor is clear on nodes that the spec, which may ask for more than the gang
// does, allows.
func (s *search) clearFor(i int, sp *spec) (hurt []int, ok bool) {
	d := s.m.bidders[i]
	st := &d.steps[s.k[i]]
	gi := st.gangs[0]
	nodes, each := fewest(sp), sp.sh.GPUsPerNode
	if len(st.gangs) > 1 || st.nodes > 0 || len(sp.held) > 0 || len(sp.required) > 0 || sp.sh.Exclusive {
		return nil, false
	}
	if each == 0 {
		if nodes > 1 {
			return nil, false
		}
		each = sp.sh.GPUs
	}
	on := s.cheapest(i, sp, each, nodes)
	if on == nil {
		return nil, false
	}
	for _, sh := range on {
		lost, fits := s.clearNode(i, sp, sh, nodes, on)
		hurt = append(hurt, lost...)
		if !fits {
			return hurt, false
		}
	}
	s.move(ref{i, gi}, on, nodes)
	s.account(i, s.k[i]+1)
	return hurt, true
}

// cheapest chooses the nodes that cost least to clear, in one rack if the gang
// has several and that costs no more than it gains.
func (s *search) cheapest(i int, sp *spec, each, nodes int) []share {
	type node struct {
		id   int32
		cost float64
	}
	var all []node
	s.effort -= len(s.s.cells)
	for q := range s.room {
		s.room[q].known = false
	}
	for n := range s.s.cells {
		if sp.scope != nil && !sp.scope[n] {
			continue
		}
		if c := s.clearing(i, sp, int32(n), each, nodes); !math.IsInf(c, 1) {
			all = append(all, node{int32(n), c})
		}
	}
	if len(all) < nodes {
		return nil
	}
	byCost := func(a, b node) int { return cmp.Compare(a.cost, b.cost) }
	pick := func(from []node) ([]share, float64) {
		from = slices.Clone(from)
		slices.SortStableFunc(from, byCost)
		var on []share
		var cost float64
		for _, n := range from[:nodes] {
			on = append(on, share{node: n.id, gpus: each})
			cost += n.cost
		}
		return on, cost
	}
	if nodes == 1 {
		best := slices.MinFunc(all, byCost)
		return []share{{node: best.id, gpus: each}}
	}
	var best []share
	least := math.Inf(1)
	for from := 0; from < len(all); {
		to := from + 1
		rack := s.s.cells[all[from].id].rack
		for to < len(all) && s.s.cells[all[to].id].rack == rack {
			to++
		}
		if rack >= 0 && to-from >= nodes {
			if on, c := pick(all[from:to]); c < least {
				best, least = on, c
			}
		}
		from = to
	}
	on, c := pick(all)
	if best == nil || c+1e-3 < least {
		return on
	}
	return best
}

// clearing estimates what it costs to free so much of a node; infinite if it
// cannot be done.
func (s *search) clearing(i int, sp *spec, n int32, each, nodes int) float64 {
	if s.s.holds(sp, n, each, nodes) {
		return 0
	}
	if s.s.lacksType(sp, n) {
		return math.Inf(1)
	}
	var others [16]leaver
	count := 0
	for at, r := range s.who[n] {
		if count < len(others) && s.mayLeave(i, sp, r, n, each) {
			if c := s.leaving(i, r, at); !math.IsInf(c, 1) {
				others[count] = leaver{s.holdOn(r, n), c}
				count++
			}
		}
	}
	short := s.shortage(sp, n, each, nodes)
	var cost float64
	for !short.none() {
		best, top := -1, 0.0
		for k := range count {
			if r := short.part(others[k].hold) / max(others[k].cost, 1e-12); r > top {
				best, top = k, r
			}
		}
		if best < 0 {
			return math.Inf(1)
		}
		cost += others[best].cost
		short.less(others[best].hold)
		count--
		others[best] = others[count]
	}
	return cost
}

// leaver is a gang that could leave a node, and what its bidder loses by it.
type leaver struct {
	hold *hold
	cost float64
}

// mayLeave says whether a gang on the node is in the way.
func (s *search) mayLeave(i int, sp *spec, r ref, n int32, each int) bool {
	return r.bidder != i && !(s.s.typedShort(sp, n, each) && s.m.bidders[r.bidder].specs[r.gang].typ != sp.typ)
}

// shortage is what a node lacks for a share.
type shortage struct{ gpus, cpus, mem float64 }

func (s *search) shortage(sp *spec, n int32, each, nodes int) shortage {
	c, w := &s.s.cells[n], sp.need(each, nodes)
	short := shortage{gpus: float64(each - s.s.has(sp, n))}
	if c.cpus >= 0 {
		short.cpus = float64(w.CPUs - c.cpus)
	}
	if c.mem >= 0 {
		short.mem = float64(w.MemMiB - c.mem)
	}
	return short
}

func (x shortage) none() bool { return x.gpus <= 0 && x.cpus <= 0 && x.mem <= 0 }

// part is how much of the shortage a hold would end, by resource.
func (x shortage) part(h *hold) float64 {
	of := func(short, has float64) float64 {
		if short <= 0 {
			return 0
		}
		return min(has/short, 1)
	}
	return of(x.gpus, float64(h.gpus)) + of(x.cpus, float64(h.cpus)) + of(x.mem, float64(h.mem))
}

func (x *shortage) less(h *hold) {
	x.gpus -= float64(h.gpus)
	x.cpus -= float64(h.cpus)
	x.mem -= float64(h.mem)
}

func (s *search) holdOn(r ref, n int32) *hold {
	holds := s.at[r.bidder][r.gang].holds
	for i := range holds {
		if holds[i].node == n {
			return &holds[i]
		}
	}
	return nil
}

// outlet is where gangs of a kind can go if they must leave.
type outlet struct {
	known  bool
	fits   bool      // into free room
	losses []float64 // of those who would give up such a gang, the least first
}

// lossesMost is how many of them are worth knowing.
const lossesMost = 8

// outlet looks the kind of a gang up, once in a trial.
func (s *search) outlet(i, kind int, sp *spec) *outlet {
	o := &s.room[kind]
	if o.known {
		return o
	}
	*o = outlet{known: true, fits: s.s.find(sp, nil) != nil, losses: o.losses[:0]}
	if o.fits || s.m.kinds[kind].Nodes > 1 {
		return o
	}
	for j := range s.k {
		if loss, ok := s.gives(j, kind); ok && j != i {
			at, _ := slices.BinarySearch(o.losses, loss)
			if o.losses = slices.Insert(o.losses, at, loss); len(o.losses) > lossesMost {
				o.losses = o.losses[:lossesMost]
			}
		}
	}
	return o
}

// gives is what a bidder loses by its last step, if that is one gang of the kind.
func (s *search) gives(j, kind int) (loss float64, ok bool) {
	d, k := s.m.bidders[j], s.k[j]
	if k == 0 {
		return 0, false
	}
	st := &d.steps[k-1]
	if st.nodes > 0 || len(st.gangs) > 1 || st.add[0] != kind || len(d.specs[st.gangs[0]].held) > 0 || st.drop >= 0 {
		return 0, false
	}
	return s.worth[j] - d.value[k-1][0], true
}

// leaving is what is lost if a gang leaves its place, the at-th to do so:
// nothing if it fits elsewhere, else what the bidder that gives up such a gang
// most easily loses by it, or its own last step; infinite if it cannot leave.
func (s *search) leaving(i int, r ref, at int) float64 {
	d := s.m.bidders[r.bidder]
	sp := &d.specs[r.gang]
	if len(sp.held) > 0 || sp.g.Group != "" || len(sp.required) > 0 {
		return math.Inf(1)
	}
	kind := sp.kind
	o := s.outlet(i, kind, sp)
	if o.fits {
		return 1e-6 * float64(s.m.kinds[kind].Need.GPUs) // a small gang rather than a large one
	}
	if n := len(o.losses); n > 0 && len(s.at[r.bidder][r.gang].holds) == 1 {
		return o.losses[min(at, n-1)]
	}
	last := &d.steps[s.k[r.bidder]-1]
	if last.gangs[0] != r.gang && (len(last.gangs) > 1 || last.nodes > 0 || !d.like(s.m, last.gangs[0], r.gang)) {
		return math.Inf(1)
	}
	k := s.k[r.bidder] - 1
	return s.worth[r.bidder] - d.value[k][min(s.tight(r.bidder), d.most(k))]
}

// replace takes a gang off its nodes at the cost of the bidder that loses least:
// its own last step, or that of another bidder with such a gang, whose place it
// gets. It returns who lost a step.
func (s *search) replace(i int, r ref) (victim int, ok bool) {
	d := s.m.bidders[r.bidder]
	kind := d.specs[r.gang].kind
	victim = -1
	least := math.Inf(1)
	top := &d.steps[s.k[r.bidder]-1]
	last := top.gangs[0]
	if last == r.gang && len(top.gangs) == 1 || top.nodes == 0 && d.like(s.m, last, r.gang) && (d.growth[r.gang] == 0 || len(s.at[r.bidder][r.gang].holds) == len(s.at[r.bidder][last].holds)) {
		victim, least = r.bidder, s.worth[r.bidder]-s.m.bidders[r.bidder].value[s.k[r.bidder]-1][0]
	}
	if len(s.at[r.bidder][r.gang].holds) == 1 {
		for j := range s.k {
			if loss, ok := s.gives(j, kind); ok && j != i && j != r.bidder && loss < least && len(s.at[j][s.m.bidders[j].steps[s.k[j]-1].gangs[0]].holds) == 1 {
				victim, least = j, loss
			}
		}
	}
	switch {
	case victim < 0:
		return -1, false
	case victim == r.bidder:
		s.swap(victim, last, r.gang)
		s.drop(victim)
	default:
		v := s.m.bidders[victim]
		on := s.at[victim][v.steps[s.k[victim]-1].gangs[0]].shares()
		s.drop(victim)
		sp := &d.specs[r.gang]
		if sp.scope != nil && !sp.scope[on[0].node] || !s.s.holds(sp, on[0].node, on[0].gpus, 1) {
			return -1, false
		}
		s.move(r, on, 1)
		s.account(r.bidder, s.k[r.bidder])
	}
	s.shed(victim)
	return victim, true
}

// elsewhere finds another place for a gang, on as many nodes.
func (s *search) elsewhere(r ref, avoid []int32) []share {
	sp := &s.m.bidders[r.bidder].specs[r.gang]
	if n := len(s.at[r.bidder][r.gang].holds); n > fewest(sp) && sp.sh.GPUsPerNode > 0 {
		return s.s.tightest(sp, n, avoid)
	}
	return s.find(r.bidder, r.gang, avoid)
}

// clearNode moves gangs off a node until the share fits.
func (s *search) clearNode(i int, sp *spec, sh share, nodes int, keep []share) (hurt []int, ok bool) {
	var avoid []int32
	for _, k := range keep {
		avoid = append(avoid, k.node)
	}
	for !s.s.holds(sp, sh.node, sh.gpus, nodes) {
		short := s.shortage(sp, sh.node, sh.gpus, nodes)
		best, top := ref{-1, -1}, 0.0
		for _, r := range s.who[sh.node] {
			if !s.mayLeave(i, sp, r, sh.node, sh.gpus) {
				continue
			}
			if p := short.part(s.holdOn(r, sh.node)) / max(s.leaving(i, r, 0), 1e-12); p > top {
				best, top = r, p
			}
		}
		if best.bidder < 0 {
			return hurt, false
		}
		if on := s.elsewhere(best, avoid); on != nil {
			s.move(best, on, len(on))
			s.account(best.bidder, s.k[best.bidder])
			continue
		}
		victim, ok := s.replace(i, best)
		if !ok {
			return hurt, false
		}
		hurt = append(hurt, victim)
	}
	return hurt, true
}
