// SPDX-License-Identifier: Apache-2.0

// Package auction holds one round of the paper's auction (section 5): apps bid
// for the GPUs on offer with what their rho would become, the allocation that
// maximises the product of 1/rho wins, and each winner pays by how much its
// presence costs the others.
//
// A round is a function of its offer and bids: no clock, randomness or
// goroutine. Equal bids are told apart by Bid.Order, which the caller derives
// from submission, never from names or input order.
package auction

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// Bid is an app's valuation of any offer: the gangs it could start, in the
// order in which the app itself would start them, and its rho as a function of
// the rate at which it would then work.
type Bid struct {
	App   string
	Order int64 // breaks ties: lower first
	Base  float64
	Gangs []Gang
	// Rho is the app's projected rho when it works at rate GPUs (each counted
	// with its S) in all. It must be positive and not rise with rate.
	Rho func(rate float64) float64
	// Lost is the app's rho if it wins nothing and so loses what it holds,
	// restart included. 0 means Rho(Base): it holds nothing that is on offer.
	Lost float64
}

// none is the app's rho if it wins nothing.
func (b *Bid) none() float64 {
	if b.Lost > 0 {
		return b.Lost
	}
	return b.Rho(b.Base)
}

// Award is what one app won.
type Award struct {
	App     string
	Places  []Placement
	Rho     float64 // with the award
	Before  float64 // without it
	Payment float64 // c_i in (0,1]: the share of a full lease it is left with
}

// Result is a round's outcome.
type Result struct {
	Awards  []Award // in the order of the bids' Order
	Welfare float64 // sum over all bids of log(1/rho)
	Bound   float64 // no allocation has more welfare
	Exact   bool    // found by exhaustive search, else by greedy ascent
}

const (
	// exactStates bounds the exhaustive search; beyond it a round is greedy.
	exactStates = 2000
	// chargedMost bounds winners times bids; beyond it nobody is charged, the
	// side of the error that is kinder to the apps.
	chargedMost = 100_000
)

// Run holds a round. The space is left with what nobody won.
func Run(space *Space, bids []Bid) Result {
	bids = slices.Clone(bids)
	slices.SortStableFunc(bids, func(a, b Bid) int { return cmp.Compare(a.Order, b.Order) })
	served, exact := solve(space, bids, -1)
	final, places := pack(space, bids, served)
	res := Result{Exact: exact}
	var winners []int
	for i := range bids {
		rho := value(&bids[i], places[i])
		res.Welfare -= math.Log(rho)
		res.Bound += alone(space, &bids[i])
		if len(places[i]) > 0 {
			res.Awards = append(res.Awards, Award{App: bids[i].App, Places: places[i], Rho: rho, Before: bids[i].none(), Payment: 1})
			winners = append(winners, i)
		}
	}
	if len(winners)*len(bids) <= chargedMost {
		for k, i := range winners {
			res.Awards[k].Payment = payment(space, bids, places, i)
		}
	}
	if exact {
		res.Bound = res.Welfare
	}
	*space = *final
	return res
}

// value is the app's rho with the given places.
func value(b *Bid, places []Placement) float64 {
	if len(places) == 0 {
		return b.none()
	}
	rate := b.Base
	for _, p := range places {
		rate += p.Rate
	}
	return b.Rho(rate)
}

// alone is an app's best log(1/rho) if it had the whole offer to itself.
func alone(space *Space, b *Bid) float64 {
	s := space.clone()
	places, _ := s.placeFirst(b, len(b.Gangs))
	return -math.Log(min(value(b, places), b.none()))
}

// payment is c_i: the others' product of 1/rho with i over that without i. A
// winner's market without it is solved by the same solver, and never counts as
// worse for the others than the one with it.
func payment(space *Space, bids []Bid, places [][]Placement, i int) float64 {
	without, _ := solve(space, bids, i)
	_, others := pack(space, bids, without)
	var logC float64
	for j := range bids {
		if j != i {
			logC += math.Log(value(&bids[j], others[j])) - math.Log(value(&bids[j], places[j]))
		}
	}
	return math.Exp(min(logC, 0))
}

// solve chooses how many of its gangs each bid is served, leaving out bid skip.
func solve(space *Space, bids []Bid, skip int) (served []int, exact bool) {
	states := 1
	for i := range bids {
		if i != skip {
			if states *= len(bids[i].Gangs) + 1; states > exactStates {
				return greedy(space, bids, skip), false
			}
		}
	}
	return search(space, bids, skip), true
}

// search tries every combination of counts, best bound first.
func search(space *Space, bids []Bid, skip int) []int {
	n := len(bids)
	rest := make([]float64, n+1) // most that bids i.. can add
	for i := n - 1; i >= 0; i-- {
		if rest[i] = rest[i+1]; i != skip {
			rest[i] += alone(space, &bids[i])
		}
	}
	cur, best := make([]int, n), greedy(space, bids, skip)
	top := welfare(space, bids, best, skip)
	var visit func(i int, sum float64)
	visit = func(i int, sum float64) {
		const tie = 1e-12
		if sum+rest[i] <= top+tie {
			return
		}
		if i == n {
			if _, places := pack(space, bids, cur); len(places) == n && fits(places, cur) {
				if w := total(bids, places, skip); w > top+tie {
					top = w
					copy(best, cur)
				}
			}
			return
		}
		for k := gangsOf(bids, i, skip); k >= 0; k-- {
			cur[i] = k
			if _, places := pack(space, bids[:i+1], cur[:i+1]); fits(places, cur[:i+1]) {
				visit(i+1, total(bids[:i+1], places, skip))
			}
		}
		cur[i] = 0
	}
	visit(0, 0)
	return best
}

func gangsOf(bids []Bid, i, skip int) int {
	if i == skip {
		return 0
	}
	return len(bids[i].Gangs)
}

func fits(places [][]Placement, served []int) bool {
	for i, k := range served {
		if len(places[i]) < k {
			return false
		}
	}
	return true
}

func welfare(space *Space, bids []Bid, served []int, skip int) float64 {
	_, places := pack(space, bids, served)
	return total(bids, places, skip)
}

func total(bids []Bid, places [][]Placement, skip int) float64 {
	var sum float64
	for i := range bids {
		if i != skip {
			sum -= math.Log(value(&bids[i], places[i]))
		}
	}
	return sum
}

// greedy serves, again and again, the next gang that adds most welfare for
// each GPU it takes, until none fits. Only the gain of who was served changes,
// so the best is kept on a heap.
func greedy(space *Space, bids []Bid, skip int) []int {
	served := make([]int, len(bids))
	queue := make(ascent, 0, len(bids))
	for i := range bids {
		if i != skip && len(bids[i].Gangs) > 0 {
			queue = append(queue, next(bids, i, 0, bids[i].Base, bids[i].none()))
		}
	}
	heap.Init(&queue)
	s := space.clone()
	for len(queue) > 0 {
		top := &queue[0]
		b := &bids[top.bid]
		placed := s.PlaceAll(b.Gangs[served[top.bid] : served[top.bid]+top.count])
		if placed == nil {
			heap.Pop(&queue)
			continue
		}
		rate := top.rate
		for _, p := range placed {
			rate += p.Rate
		}
		served[top.bid] += top.count
		if served[top.bid] == len(b.Gangs) {
			heap.Pop(&queue)
			continue
		}
		*top = next(bids, top.bid, served[top.bid], rate, b.Rho(rate))
		heap.Fix(&queue, 0)
	}
	return served
}

// rung is what serving a bid's next gangs would gain.
type rung struct {
	bid, count int
	rate, gain float64
}

func next(bids []Bid, i, from int, rate, rho float64) rung {
	count, gpus, add := nextGroup(&bids[i], from)
	gain := (math.Log(rho) - math.Log(bids[i].Rho(rate+add))) / float64(max(gpus, 1))
	return rung{bid: i, count: count, rate: rate, gain: gain}
}

// ascent is a heap of rungs, the largest gain on top, ties by the bids' order.
type ascent []rung

func (a ascent) Len() int { return len(a) }
func (a ascent) Less(i, j int) bool {
	return a[i].gain > a[j].gain || a[i].gain == a[j].gain && a[i].bid < a[j].bid
}
func (a ascent) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *ascent) Push(x any)   { *a = append(*a, x.(rung)) }
func (a *ascent) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// nextGroup is the next gang of the bid with those that must start with it.
func nextGroup(b *Bid, from int) (count, gpus int, rate float64) {
	g := &b.Gangs[from]
	for count = 0; from+count < len(b.Gangs); count++ {
		h := &b.Gangs[from+count]
		if count > 0 && (g.Group == "" || h.Group != g.Group) {
			break
		}
		n := h.Shape.Count()
		gpus += n
		rate += float64(n)
	}
	return count, gpus, rate
}

// apart notes the nodes that each group has taken. The gangs of a group share
// no node: Slurm starts the components of a het job on nodes of their own.
type apart map[[2]string]bool

func (s *Space) placeApart(g *Gang, taken apart) (Placement, bool) {
	if g.Group == "" {
		return s.Place(g)
	}
	alone := *g
	alone.Eligible = func(node string) bool {
		return !taken[[2]string{g.Group, node}] && (g.Eligible == nil || g.Eligible(node))
	}
	p, ok := s.Place(&alone)
	for _, sh := range p.On {
		taken[[2]string{g.Group, sh.Node}] = true
	}
	return p, ok
}

// placeGroup places all the gangs or reports false.
func (s *Space) placeGroup(gangs []Gang) ([]Placement, bool) {
	out := make([]Placement, 0, len(gangs))
	taken := apart{}
	for i := range gangs {
		p, ok := s.placeApart(&gangs[i], taken)
		if !ok {
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

// placeFirst places up to k gangs of the bid, in its order, passing over none:
// an app's order is its own.
func (s *Space) placeFirst(b *Bid, k int) ([]Placement, int) {
	var out []Placement
	for n := 0; n < k; {
		count, _, _ := nextGroup(b, n)
		trial := s.clone()
		placed, ok := trial.placeGroup(b.Gangs[n : n+count])
		if !ok {
			return out, n
		}
		*s = *trial
		out = append(out, placed...)
		n += count
	}
	return out, k
}

// pack puts the chosen gangs onto nodes, the tightest first.
func pack(space *Space, bids []Bid, served []int) (*Space, [][]Placement) {
	type item struct{ bid, gang int }
	var items []item
	for i := range bids {
		for k := 0; k < served[i]; k++ {
			items = append(items, item{i, k})
		}
	}
	at := func(it item) *Gang { return &bids[it.bid].Gangs[it.gang] }
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(tighter(at(a), at(b)), cmp.Compare(bids[a.bid].Order, bids[b.bid].Order))
	})
	s := space.clone()
	got := make([]map[int]Placement, len(bids))
	for i := range got {
		got[i] = map[int]Placement{}
	}
	taken := apart{}
	for _, it := range items {
		if p, ok := s.placeApart(at(it), taken); ok {
			got[it.bid][it.gang] = p
		}
	}
	places := make([][]Placement, len(bids))
	for i := range bids {
		places[i] = s.whole(&bids[i], got[i])
	}
	return s, places
}

// whole drops the placements of groups that did not fit together.
func (s *Space) whole(b *Bid, got map[int]Placement) []Placement {
	var out []Placement
	for n := 0; n < len(b.Gangs); {
		count, _, _ := nextGroup(b, n)
		var part []Placement
		for k := n; k < n+count; k++ {
			if p, ok := got[k]; ok {
				part = append(part, p)
			}
		}
		if len(part) == count {
			out = append(out, part...)
		} else {
			for k := n; k < n+count; k++ {
				if p, ok := got[k]; ok {
					s.give(&b.Gangs[k], p.On)
				}
			}
		}
		n += count
	}
	return out
}

// TightestFirst sorts gangs in the order in which packing serves them well:
// those that run already stay, then the largest, and of equals the one that
// loses most by spreading.
func TightestFirst(gangs []Gang) {
	slices.SortStableFunc(gangs, func(a, b Gang) int { return tighter(&a, &b) })
}

func tighter(g, h *Gang) int {
	return cmp.Or(
		cmp.Compare(len(h.Held), len(g.Held)),
		cmp.Compare(h.Shape.Count(), g.Shape.Count()),
		cmp.Compare(spread(h), spread(g)))
}

// spread is what a gang loses by leaving one machine.
func spread(g *Gang) float64 {
	if g.Speed == nil {
		return 0
	}
	return g.Speed(1) - g.Speed(2)
}
