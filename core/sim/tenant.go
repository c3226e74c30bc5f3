// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// tenant is a job that gets leases.
type tenant struct {
	*Job
	leases []*lease
	on     []Share // elastic: what it is going to have
	n      int
	fresh  []Share // of that, what is leased from now on
	rho    float64 // for bids
	key    float64 // in its queue
	held   bool
	won    bool
	dirty  bool
}

// lease is a gang's (node -1), or of GPUs of one node.
type lease struct {
	tenant *tenant
	node   int
	gpus   int
	until  time.Duration
	gone   bool
}

// queue holds the waiting gangs of one size, best first.
type queue struct {
	size int
	all  []*tenant
}

// ahead orders by score, then who came with GPUs in hand, then submission.
func ahead(x, y *tenant) bool {
	if x.key != y.key {
		return x.key > y.key
	}
	if x.held != y.held {
		return x.held
	}
	return x.Index < y.Index
}

func (q *queue) Len() int           { return len(q.all) }
func (q *queue) Less(i, k int) bool { return ahead(q.all[i], q.all[k]) }
func (q *queue) Swap(i, k int)      { q.all[i], q.all[k] = q.all[k], q.all[i] }
func (q *queue) Push(x any)         { q.all = append(q.all, x.(*tenant)) }
func (q *queue) Pop() any {
	t := q.all[len(q.all)-1]
	q.all = q.all[:len(q.all)-1]
	return t
}

// leases is a heap of them by end, ties by submission and node.
type leases []*lease

func (h leases) Len() int { return len(h) }
func (h leases) Less(i, k int) bool {
	x, y := h[i], h[k]
	if x.until != y.until {
		return x.until < y.until
	}
	if x.tenant != y.tenant {
		return x.tenant.Index < y.tenant.Index
	}
	return x.node < y.node
}
func (h leases) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *leases) Push(x any)   { *h = append(*h, x.(*lease)) }
func (h *leases) Pop() any {
	s := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return s
}
