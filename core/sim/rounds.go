// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"
)

// rounds runs gangs in rounds of a lease each, as Gavel and Shockwave do: at a
// round's begin rank puts all live jobs in order, and those that fit run, best
// first, until its end. GPUs that a job leaves within a round stay idle, and what
// arrives waits for the next; a cluster with nothing to do begins one at once.
// Elastic jobs run on all the GPUs that they can use. A failed job waits likewise.
type rounds struct {
	rank func(w *World, live []*Job) []*Job
	pool *pool
	next time.Duration // when the next round begins
}

func (r *rounds) Decide(w *World) {
	if len(w.Live) == 0 {
		return
	}
	if w.Now < r.next && w.Free < w.up() {
		w.Wake(r.next)
		return
	}
	for _, j := range w.Live {
		w.Sync(j)
	}
	r.pool.load(w)
	for _, j := range w.Live {
		r.pool.give(j.On)
	}
	left := r.pool.total
	var run []*Job
	stay := map[*Job]bool{}
	for _, j := range r.rank(w, w.Live) {
		if n := w.gang(j); n <= left {
			left -= n
			run = append(run, j)
			stay[j] = true
		}
	}
	for _, j := range w.Live {
		if !stay[j] {
			w.Place(j, nil)
		}
	}
	r.pool.seat(w, r.pool.keep(w, run))
	r.next = w.Now + w.Lease
	w.Wake(r.next)
}

// up counts the GPUs of nodes that are up.
func (w *World) up() int {
	n := 0
	for i := range w.Nodes {
		if !w.Nodes[i].Down {
			n += w.Nodes[i].Total
		}
	}
	return n
}

// byKey sorts jobs by a key, the highest first, ties to those that run, then by
// submission.
func byKey(jobs []*Job, key func(j *Job) float64) []*Job {
	h := &keyed{}
	for _, j := range jobs {
		h.all = append(h.all, keyedJob{key(j), j})
	}
	slices.SortFunc(h.all, compareKeyed)
	out := make([]*Job, len(jobs))
	for i, k := range h.all {
		out[i] = k.job
	}
	return out
}

// keyedJob is a job with its key.
type keyedJob struct {
	key float64
	job *Job
}

func compareKeyed(x, y keyedJob) int {
	switch {
	case x.key != y.key:
		if x.key > y.key {
			return -1
		}
		return 1
	case (x.job.Held > 0) != (y.job.Held > 0):
		if x.job.Held > 0 {
			return -1
		}
		return 1
	}
	return x.job.Index - y.job.Index
}

// keyed is a heap of them, the best on top.
type keyed struct{ all []keyedJob }

func (h *keyed) Len() int           { return len(h.all) }
func (h *keyed) Less(i, k int) bool { return compareKeyed(h.all[i], h.all[k]) < 0 }
func (h *keyed) Swap(i, k int)      { h.all[i], h.all[k] = h.all[k], h.all[i] }
func (h *keyed) Push(x any)         { h.all = append(h.all, x.(keyedJob)) }
func (h *keyed) Pop() any {
	k := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return k
}
