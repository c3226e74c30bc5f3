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
	p.price(pr)
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
	spent := s.cost[i][from]
	if d.mixes != nil && from > 0 {
		spent += d.more(s.pr, s.tight(i))
	}
	try := func(k int) {
		value, cost := s.offer(i, k)
		gain := value - s.worth[i]
		if gain <= 1e-12 {
			return
		}
		r := gain / max(cost-spent, 1e-12)
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

// offer is what k steps are worth to a bidder and what they cost, as it would
// choose them.
func (s *search) offer(i, k int) (value, cost float64) {
	d := s.m.bidders[i]
	value, cost = d.value[k][d.most(k)], s.cost[i][k]
	if d.mixes == nil {
		return value, cost
	}
	top := math.Inf(-1)
	for r, v := range d.value[k] {
		if c := s.cost[i][k] + d.more(s.pr, r); v-c > top {
			value, cost, top = v, c, v-c
		}
	}
	return value, cost
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
func (s *search) fill(who []int) { s.fillUp(who, math.MaxInt) }

// fillUp is fill that stops once so many GPUs are handed out.
func (s *search) fillUp(who []int, gpus int) {
	queue := make(rungs, 0, len(who))
	for _, i := range who {
		if to, ratio := s.jump(i); to > 0 {
			queue = append(queue, rung{i, to, ratio})
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 && gpus > 0 {
		top := &queue[0]
		had := s.gpusOf(top.bidder)
		ok := s.climb(top.bidder, top.to)
		if ok {
			gpus -= s.gpusOf(top.bidder) - had
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
		r += d.more(s.pr, n)
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
		near := list[:min(len(list), nearMost)]
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
	var list, others []int
	var sum float64
	for i := range s.m.bidders {
		if regrets[i] = s.regret(i); regrets[i] > 1e-6 {
			list = append(list, i)
			sum += regrets[i]
		} else if s.indifferent(i) {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(regrets[b], regrets[a]) })
	if sum < (s.pr.bound-s.welfare)/2 {
		list = append(list, others...)
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
	if s.upgrade(i, near) {
		return
	}
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
