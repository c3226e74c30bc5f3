// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// search is a packing being improved, with the prices that guide it.
type search struct {
	*packing
	pr     *prices
	cost   [][]float64 // by bidder: of the first k steps
	effort int         // left, in nodes looked at
	room   []outlet    // by kind, while one trial looks around
}

func (m *model) newSearch(p *packing, pr *prices) *search {
	s := &search{packing: p, pr: pr, cost: make([][]float64, len(m.bidders)), room: make([]outlet, len(m.kinds))}
	for i, d := range m.bidders {
		s.cost[i] = d.cost(pr)
	}
	return s
}

// jump is the rise up its ladder that gains a bidder most per price; 0: none.
// It looks past steps that gain nothing by themselves.
func (s *search) jump(i int) (to int, ratio float64) {
	d := s.m.bidders[i]
	from := s.k[i]
	try := func(k int) {
		gain := d.value[k][d.most(k)] - s.worth[i]
		if gain <= 1e-12 {
			return
		}
		r := gain / max(s.cost[i][k]-s.cost[i][from], 1e-12)
		if r > ratio {
			to, ratio = k, r
		}
	}
	if from < len(d.steps) {
		try(from + 1)
	}
	for n := range d.ladder {
		corners := d.ladder[n].corners
		at, _ := slices.BinarySearchFunc(corners, from+2, func(c corner, k int) int { return cmp.Compare(c.k, k) })
		for looked := 0; at < len(corners) && looked < cornersMost; at++ {
			if c := corners[at]; c.r == d.most(c.k) {
				try(c.k)
				looked++
			}
		}
	}
	return to, ratio
}

// cornersMost is how far ahead a jump looks in each stretch of like steps: gains
// per price fall from corner to corner.
const cornersMost = 4

// climb serves steps up to a target and keeps the best height reached. It
// reports whether that gained anything.
func (s *search) climb(i, to int) bool {
	worth, kept := s.worth[i], s.mark()
	best := worth
	for s.k[i] < to && s.serve(i) {
		if s.worth[i] > best+1e-12 {
			best, kept = s.worth[i], s.mark()
		}
	}
	s.rollback(kept)
	return best > worth
}

// fill serves who gains most per price, again and again, until nothing fits.
func (s *search) fill(who []int) {
	queue := make(rungs, 0, len(who))
	for _, i := range who {
		if to, ratio := s.jump(i); to > 0 {
			queue = append(queue, rung{i, to, ratio})
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		top := &queue[0]
		ok := s.climb(top.bidder, top.to)
		if ok {
			top.to, top.ratio = s.jump(top.bidder)
		}
		if !ok || top.to == 0 {
			heap.Pop(&queue)
		} else {
			heap.Fix(&queue, 0)
		}
	}
}

// rung is a jump that a bidder waits to make.
type rung struct {
	bidder, to int
	ratio      float64
}

type rungs []rung

func (q rungs) Len() int { return len(q) }
func (q rungs) Less(i, j int) bool {
	return q[i].ratio > q[j].ratio || q[i].ratio == q[j].ratio && q[i].bidder < q[j].bidder
}
func (q rungs) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *rungs) Push(x any)   { *q = append(*q, x.(rung)) }
func (q *rungs) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// regret is by how much the bidder's allocation falls short of what it would
// choose at the prices. Regrets and unsold capacity at its price are the gap.
func (s *search) regret(i int) float64 {
	d := s.m.bidders[i]
	r := s.pr.surplus[i] - s.worth[i] + s.cost[i][s.k[i]]
	if n := s.tight(i); n > 0 {
		r += float64(n) * (s.pr.tight[d.choice] - s.pr.wide[d.choice])
	}
	return r
}

// improve tries, for those with most regret first, to give them what they would
// choose: into what is free, by moving others aside, and by taking from those
// who lose less. Where regrets do not explain the gap, GPUs lie idle: then those
// move who are all but indifferent at the prices. Moves that do not pay are
// undone. effort bounds the work: how many nodes are looked at for who could leave
// them.
func (s *search) improve(effort int) {
	s.effort = effort
	goal := goodEnough * float64(len(s.m.bidders))
	for s.effort > 0 && s.pr.bound-s.welfare > goal {
		list := s.sad()
		near := make([]int, 0, nearMost)
		for _, i := range list[:min(len(list), nearMost)] {
			near = append(near, i)
		}
		before := s.welfare
		for _, i := range list {
			if s.effort -= nearMost; s.effort <= 0 {
				break
			}
			s.try(i, near)
		}
		if s.welfare <= before+1e-9 {
			break
		}
	}
	s.journal = s.journal[:0]
}

// goodEnough is the gap per bidder at which no more is tried.
const goodEnough = 5e-5

// sad lists who may move, those with most regret first.
func (s *search) sad() []int {
	regrets := make([]float64, len(s.m.bidders))
	var list, even []int
	var sum float64
	for i := range s.m.bidders {
		if regrets[i] = s.regret(i); regrets[i] > 1e-6 {
			list = append(list, i)
			sum += regrets[i]
		} else if s.indifferent(i) {
			even = append(even, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(regrets[b], regrets[a]) })
	if sum < (s.pr.bound-s.welfare)/2 {
		list = append(list, even...)
	}
	return list
}

// indifferent says whether more or less would be worth about its price to the
// bidder.
func (s *search) indifferent(i int) bool {
	if _, ratio := s.jump(i); ratio > 1-even {
		return true
	}
	d, k, to := s.m.bidders[i], s.k[i], s.below(i)
	return k > 0 && s.worth[i]-d.value[to][0] < (1+even)*(s.cost[i][k]-s.cost[i][to])
}

// even is how far from its price a gain is no matter of regret.
const even = 0.1

// nearMost is how many others are offered what a trial left free.
const nearMost = 24

// try moves a bidder to what it would choose and refills; it keeps the result
// if the welfare rose.
func (s *search) try(i int, near []int) {
	before, mark := s.welfare, s.mark()
	d := s.m.bidders[i]
	targets := []int{s.pr.answer[i].k}
	if to, _ := s.jump(i); to > 0 && to != targets[0] {
		targets = append(targets, to)
	}
	if s.k[i] > 0 && targets[0] >= s.k[i] {
		targets = append(targets, s.below(i))
	}
	for _, to := range targets {
		if to == s.k[i] || to > len(d.steps) {
			continue
		}
		var hurt []int
		for s.k[i] > to {
			s.drop(i)
			hurt = []int{i}
		}
		for s.k[i] < to && s.effort > 0 {
			if s.serve(i) {
				continue
			}
			evicted, ok := s.clear(i)
			hurt = append(hurt, evicted...)
			if !ok {
				break
			}
		}
		if len(hurt) > 0 || s.k[i] == to {
			s.fill(append(hurt, near...))
		}
		if s.welfare > before+1e-9 {
			s.journal = s.journal[:mark]
			return
		}
		s.rollback(mark)
	}
}

// shed takes back steps that gain a bidder nothing, such as those under a
// threshold that it no longer reaches.
func (s *search) shed(i int) {
	d := s.m.bidders[i]
	to := s.k[i]
	for k := to - 1; k >= 0; k-- {
		if d.value[k][0] >= s.worth[i]-1e-12 {
			to = k
		}
	}
	for s.k[i] > to {
		s.drop(i)
	}
}

// below is the height to which a bidder would fall back: the last one under its
// own at which something is gained.
func (s *search) below(i int) int {
	d, k := s.m.bidders[i], 0
	for n := range d.ladder {
		for _, c := range d.ladder[n].corners {
			if c.k < s.k[i] {
				k = max(k, c.k)
			}
		}
	}
	return k
}

// clear makes room for the bidder's next step on the nodes where that costs
// least and places it there. It returns who lost a step for it.
func (s *search) clear(i int) (hurt []int, ok bool) {
	d := s.m.bidders[i]
	st := &d.steps[s.k[i]]
	gi := st.gangs[0]
	sp := &d.specs[gi]
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
			on = append(on, share{n.id, each})
			cost += n.cost
		}
		return on, cost
	}
	if nodes == 1 {
		best := slices.MinFunc(all, byCost)
		return []share{{best.id, each}}
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
	return s.s.find(sp, avoid)
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
