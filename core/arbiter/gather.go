// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"slices"
	"time"

	"themis/core/cluster"
)

// gather keeps nodes free for one gang that has waited long and would starve
// behind smaller jobs: a gang of two whole nodes never finds them free by
// itself. The nodes that are ready soonest are reserved; the gang holds no GPU
// of its own while it waits, and gives up at a deadline. One gang at a time.
func (a *Arbiter) gather(m *market) {
	for _, l := range a.leases {
		if l.State == Reserved {
			return
		}
	}
	tried := 0
	var ends endings
	for _, b := range m.bids {
		for _, g := range b.Gangs {
			j := m.byJob[g.ID]
			if _, won := m.placed[g.ID]; won || j.Lease != nil || g.Group != "" ||
				j.Shape.Count() < 2 || a.now.Sub(j.since) < a.cfg.GatherAfter {
				continue
			}
			if tried++; tried > gatherTries {
				return
			}
			if ends == nil {
				ends = a.endings(false)
			}
			on, ready := a.soonest(j, ends)
			if on == nil || ready.After(a.now.Add(a.cfg.GatherLimit)) {
				continue
			}
			l := a.newLease(j, m.record.ID, on, a.cfg.Lease)
			l.State, l.Deadline = Reserved, a.now.Add(a.cfg.GatherLimit)
			a.told = time.Time{}
			return
		}
	}
}

// gatherTries bounds the gangs that are looked at after one round.
const gatherTries = 16

// endings is what is expected to come free on each node, the soonest first.
type endings map[string][]ending

type ending struct {
	at   time.Time
	gpus int
}

// endings lists when held GPUs are expected back; with reclaims it counts on
// leases that can end. Grants that have not started are negative, at once.
func (a *Arbiter) endings(reclaims bool) endings {
	out := endings{}
	for _, l := range a.leases {
		e := ending{at: a.now}
		switch l.State {
		case Reserved:
			continue
		case Held, Ending:
			e.at = a.endOf(l, reclaims)
		}
		for _, s := range l.On {
			e.gpus = s.GPUs
			if l.State == Granted {
				e.gpus = -s.GPUs
			}
			out[s.Node] = append(out[s.Node], e)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(x, y ending) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.gpus, y.gpus)) })
	}
	return out
}

// soonest finds the nodes on which the job could start first, and when.
func (a *Arbiter) soonest(j *Job, ends endings) ([]cluster.Share, time.Time) {
	type candidate struct {
		node  string
		ready time.Time
	}
	per, biggest := j.Shape.GPUsPerNode, max(a.biggest, 1)
	n := max(j.Shape.NodesMin, len(j.Required), 1)
	if per == 0 {
		unit := j.Shape.Split()
		parts, most := j.Shape.GPUs/unit, max(biggest/unit, 1)
		n = max(n, (parts+most-1)/most)
		per = (parts + n - 1) / n * unit
	}
	eligible := func(string) bool { return true }
	if !j.AnyNode {
		ok := make(map[string]bool, len(j.Nodes))
		for _, n := range j.Nodes {
			ok[n] = true
		}
		eligible = func(n string) bool { return ok[n] }
	}
	var all []candidate
	for i := range a.nodes {
		node, name := &a.nodes[i], a.nodes[i].Name
		total := node.Of(j.Shape.Type)
		if node.State != cluster.NodeUp || total < per || !eligible(name) || !suits(j, node) {
			continue
		}
		if ready, ok := a.readyAt(node, per, j.Shape.Exclusive || a.busyElsewhere(node, j.Host), ends[name]); ok {
			all = append(all, candidate{name, ready})
		}
	}
	if len(all) < n {
		return nil, time.Time{}
	}
	must := func(c candidate) bool { return slices.Contains(j.Required, c.node) }
	slices.SortFunc(all, func(x, y candidate) int {
		if must(x) != must(y) {
			if must(x) {
				return -1
			}
			return 1
		}
		return cmp.Or(x.ready.Compare(y.ready), cmp.Compare(x.node, y.node))
	})
	on := make([]cluster.Share, n)
	left, ready := j.Shape.Count(), a.now
	for i := range on {
		on[i] = cluster.Share{Node: all[i].node, GPUs: min(per, left)}
		left -= on[i].GPUs
		if all[i].ready.After(ready) {
			ready = all[i].ready
		}
	}
	return on, ready
}

// readyAt is when the node is expected to have so many GPUs free, as its
// running jobs end or their leases do. False if never for sure.
func (a *Arbiter) readyAt(node *cluster.Node, gpus int, whole bool, ends []ending) (time.Time, bool) {
	free, ready := freeOf(node), a.now
	for _, e := range ends {
		if free >= gpus && !whole && e.gpus > 0 {
			break
		}
		free += e.gpus
		ready = e.at
	}
	return ready, free >= gpus
}

// endOf is when a lease's GPUs are expected back: when its job ends or, with
// reclaims, when the lease can be ended under it.
func (a *Arbiter) endOf(l *Lease, reclaims bool) time.Time {
	j := a.jobs[l.Job]
	at := a.now.Add(max(a.left(j), time.Second))
	if j.Limit > 0 && !j.Start.IsZero() && j.Start.Add(j.Limit).Before(at) {
		at = j.Start.Add(j.Limit)
	}
	switch {
	case l.State == Ending:
		at = l.Deadline
	case reclaims && a.reclaimable(j) && l.Expires.Add(a.cfg.Grace).Before(at):
		at = l.Expires.Add(a.cfg.Grace)
	}
	return at
}
