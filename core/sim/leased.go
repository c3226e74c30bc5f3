// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"slices"

	"themis/core/cluster"
	"themis/core/fairness"
)

// score says how much a job deserves what is at stake: a GPU for an elastic job,
// all its GPUs for a gang. It would then have that many GPUs, each at speed s,
// after a speed of before GPUs. The highest wins; ties go to who holds the GPUs,
// then by submission. A score depends on time only through what the job has done,
// unless its policy has a bid.
type score func(w *World, t *tenant, gpus int, s, before float64) float64

// leased is how THEMIS's authors model the others in their simulator (paper.md,
// "Baselines"): whenever GPUs are free they go to the jobs with the best scores,
// each for a lease from then on; at its end they are free again. An elastic job
// gets GPUs one by one, from the nearest machine that has any, unless even all
// that are free would not make it faster. A gang gets all or nothing; one that
// does not fit is passed over.
type leased struct {
	score   score
	bid     func(w *World, all []*tenant) []*tenant // if not nil: who may have GPUs in this turn
	pool    *pool
	jobs    []*tenant // by Job.Index
	elastic []*tenant // live, by submission
	waiting []*tenant // gangs, if bid is not nil
	queues  []*queue  // of gangs, by size
	due     leases
	left    int       // GPUs that nobody has been promised
	winners []*tenant // gangs
	asking  []*tenant // elastic, in this turn
	touched []*tenant
	lost    []*tenant // gangs whose leases have ended
}

func newLeased(w *World, s score) *leased { return &leased{score: s, pool: newPool(w)} }

func (l *leased) Decide(w *World) {
	l.pool.load(w)
	l.touched, l.lost, l.winners = l.touched[:0], l.lost[:0], l.winners[:0]
	l.see(w)
	for len(l.due) > 0 && (l.due[0].gone || l.due[0].until <= w.Now) {
		if s := heap.Pop(&l.due).(*lease); !s.gone {
			l.expire(w, s)
		}
	}
	l.left = l.pool.total
	if l.bid == nil {
		l.asking = l.elastic
		l.divide(w)
	} else {
		l.auction(w)
	}
	l.place(w)
	for len(l.due) > 0 && l.due[0].gone {
		heap.Pop(&l.due)
	}
	if len(l.due) > 0 {
		w.Wake(l.due[0].until)
	}
}

// see takes note of what happened.
func (l *leased) see(w *World) {
	for _, j := range w.Arrived {
		for len(l.jobs) <= j.Index {
			l.jobs = append(l.jobs, nil)
		}
		t := &tenant{Job: j}
		l.jobs[j.Index] = t
		if j.Elastic {
			l.elastic = append(l.elastic, t)
		} else {
			l.wait(w, t)
		}
	}
	gone := func(t *tenant) {
		for _, s := range t.leases {
			s.gone = true
		}
		t.leases, t.on, t.n = nil, nil, 0
	}
	for _, j := range w.Ended {
		gone(l.jobs[j.Index])
	}
	if len(w.Ended) > 0 {
		l.elastic = slices.DeleteFunc(l.elastic, func(t *tenant) bool { return t.Finished() })
	}
	if w.MTBF <= 0 {
		return
	}
	for _, j := range w.Live {
		if t := l.jobs[j.Index]; j.Held == 0 && len(t.leases) > 0 { // its node failed
			gone(t)
			if !j.Elastic {
				l.wait(w, t)
			}
		}
	}
}

// wait puts a gang among those that have no lease.
func (l *leased) wait(w *World, t *tenant) {
	t.held, t.won = t.Held > 0, false
	if l.bid != nil {
		l.waiting = append(l.waiting, t)
		return
	}
	l.enqueue(w, t)
}

func (l *leased) enqueue(w *World, t *tenant) {
	s := w.Speed(t.Job, t.On)
	if t.Held == 0 { // the best it could have
		s = w.Speed(t.Job, nil)
	}
	t.key = l.score(w, t, t.GPUs, s, 0)
	at, ok := slices.BinarySearchFunc(l.queues, t.GPUs, func(q *queue, n int) int { return q.size - n })
	if !ok {
		l.queues = slices.Insert(l.queues, at, &queue{size: t.GPUs})
	}
	heap.Push(l.queues[at], t)
}

// expire offers what a lease was for.
func (l *leased) expire(w *World, s *lease) {
	t := s.tenant
	w.Sync(t.Job)
	t.leases = slices.DeleteFunc(t.leases, func(o *lease) bool { return o == s })
	if s.node < 0 {
		l.pool.give(t.On)
		l.lost = append(l.lost, t)
		l.wait(w, t)
		return
	}
	l.pool.add(s.node, s.gpus)
	t.on = change(t.on, s.node, -s.gpus)
	t.n -= s.gpus
	l.touch(t)
}

func (l *leased) touch(t *tenant) {
	if !t.dirty {
		t.dirty = true
		l.touched = append(l.touched, t)
	}
}

// change adds GPUs of a node to shares, which are by node.
func change(on []Share, node, gpus int) []Share {
	at, ok := slices.BinarySearchFunc(on, node, func(s Share, n int) int { return s.Node - n })
	if !ok {
		return slices.Insert(on, at, Share{node, gpus})
	}
	if on[at].GPUs += gpus; on[at].GPUs == 0 {
		return slices.Delete(on, at, at+1)
	}
	return on
}

// divide gives what is left, best score first; false if nobody got anything.
func (l *leased) divide(w *World) bool {
	any := false
	for l.left > 0 {
		var q *queue
		for _, o := range l.queues {
			if o.size > l.left {
				break
			}
			if o.Len() > 0 && (q == nil || ahead(o.all[0], q.all[0])) {
				q = o
			}
		}
		t, top := l.bestElastic(w)
		switch {
		case q != nil && (t == nil || q.all[0].key >= top):
			t = heap.Pop(q).(*tenant)
			t.won = true
			l.winners = append(l.winners, t)
			l.left -= t.GPUs
		case t != nil:
			node := l.nearest(t)
			l.pool.add(node, -1)
			l.left--
			t.on, t.fresh = change(t.on, node, 1), change(t.fresh, node, 1)
			t.n++
			l.touch(t)
		default:
			return any
		}
		any = true
	}
	return any
}

// auction divides in turns: whoever bids takes part, the rest get the leftovers.
func (l *leased) auction(w *World) {
	wants := func(t *tenant) bool { return !t.won && (t.Elastic && t.n < t.GPUs || !t.Elastic) }
	var all []*tenant
	for l.left > 0 {
		if all == nil {
			for _, t := range append(slices.Clone(l.waiting), l.elastic...) {
				if w.Sync(t.Job); wants(t) {
					all = append(all, t)
				}
			}
		}
		if len(all) == 0 {
			break
		}
		part := l.bid(w, all)
		l.asking = l.asking[:0]
		for _, t := range part {
			if t.Elastic {
				l.asking = append(l.asking, t)
			} else {
				l.enqueue(w, t)
			}
		}
		got := l.divide(w)
		for _, q := range l.queues {
			q.all = q.all[:0]
		}
		if got {
			all = nil
		} else if all = slices.DeleteFunc(slices.Clone(all), func(t *tenant) bool { return slices.Contains(part, t) }); len(all) == 0 {
			break
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(t *tenant) bool { return t.won })
}

// bestElastic finds who deserves the next GPU most.
func (l *leased) bestElastic(w *World) (best *tenant, top float64) {
	for _, t := range l.asking {
		if t.n >= t.GPUs {
			continue
		}
		level, next := w.Level(t.on), l.reach(w, t)
		before := float64(t.n) * fairness.Speed(t.hint, level)
		s := fairness.Speed(t.hint, next)
		if s*float64(min(t.GPUs, t.n+l.left)) <= before {
			continue
		}
		w.Sync(t.Job)
		if v := l.score(w, t, t.n+1, s, before); best == nil || v > top || v == top && len(t.On) > 0 && len(best.On) == 0 {
			best, top = t, v
		}
	}
	return best, top
}

// reach is the placement of a job that gets one GPU more.
func (l *leased) reach(w *World, t *tenant) cluster.Level {
	if t.n == 0 {
		return cluster.Machine
	}
	level := w.Level(t.on)
	for _, s := range t.on {
		if l.pool.free[s.Node] > 0 {
			return level
		}
	}
	if r := l.pool.rack[t.on[0].Node]; level <= cluster.Rack && r >= 0 && l.pool.inRack[r] > 0 {
		return cluster.Rack
	}
	return cluster.Cluster
}

// nearest is the node whose GPU a job gets: nearest to its others, then one where
// it has been, then the one that holds what it wants most tightly.
func (l *leased) nearest(t *tenant) int {
	best, rank := -1, [3]int{}
	for i, free := range l.pool.free {
		if free == 0 {
			continue
		}
		r := [3]int{3, 1, -free}
		if want := t.GPUs - t.n; free >= want {
			r[2] = free - 1<<20
		}
		at := func(s Share) bool { return s.Node == i }
		if slices.ContainsFunc(t.on, at) {
			r[0] = 1
		} else if len(t.on) > 0 && l.pool.rack[i] >= 0 && l.pool.rack[i] == l.pool.rack[t.on[0].Node] {
			r[0] = 2
		}
		if slices.ContainsFunc(t.On, at) {
			r[1] = 0
		}
		if best < 0 || slices.Compare(r[:], rank[:]) < 0 {
			best, rank = i, r
		}
	}
	return best
}

// place does what has been divided: first who loses GPUs, then who gets some.
func (l *leased) place(w *World) {
	for _, t := range l.lost {
		if !t.won {
			w.Place(t.Job, nil)
		}
	}
	for _, t := range l.touched {
		if !slices.Equal(t.on, t.On) {
			w.Place(t.Job, nil)
		}
	}
	gangs := make([]*Job, len(l.winners))
	for i, t := range l.winners {
		gangs[i] = t.Job
		l.grant(w, t, -1, t.GPUs)
	}
	move := l.pool.keep(w, gangs)
	for _, t := range l.touched {
		w.Place(t.Job, t.on)
		for _, s := range t.fresh {
			l.grant(w, t, s.Node, s.GPUs)
		}
		t.fresh, t.dirty = t.fresh[:0], false
	}
	l.pool.seat(w, move)
}

func (l *leased) grant(w *World, t *tenant, node, gpus int) {
	s := &lease{t, node, gpus, w.Now + w.Lease, false}
	t.leases = append(t.leases, s)
	heap.Push(&l.due, s)
}
