// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"slices"
	"time"

	"themis/core/auction"
	"themis/core/cluster"
)

// What jobs make of their GPUs, as the nodes' own health checks sample it.

// IdlePolicy says what follows from GPUs that are idle under a lease.
type IdlePolicy string

// Idle policies.
const (
	IdleWarn    IdlePolicy = "warn"    // it is shown, and said to the job
	IdleReclaim IdlePolicy = "reclaim" // a lease all of whose GPUs are idle is not renewed if others need them
)

// Use is what a job made of its GPUs, as far as anybody looked.
type Use struct {
	Seen float64 // GPU-seconds that were sampled
	Busy float64 // of these, in which some kernel ran
}

// Idle counts the GPUs of a job that have done nothing for Config.IdleAfter, or
// longer; all of them since Since.
type Idle struct {
	Job   *Job
	GPUs  int
	Since time.Time
}

// observeUse charges the jobs with what their nodes say for the first time. What a node
// said before this core looked may have been charged by another.
func (a *Arbiter) observeUse() {
	var news map[string]time.Time // up to when the last was
	for i := range a.nodes {
		n := &a.nodes[i]
		last, known := a.used[n.Name]
		if known && !n.Use.Until.After(last) {
			continue
		}
		a.used[n.Name] = n.Use.Until
		if !known {
			continue
		}
		if news == nil {
			news = map[string]time.Time{}
		}
		news[n.Name] = last
	}
	if news == nil {
		return
	}
	for _, l := range a.live(holds) {
		j := a.jobs[l.Job]
		for i, s := range j.On {
			if last, ok := news[s.Node]; ok && i < len(j.Devices) {
				j.Use.add(&a.nodeOf(s.Node).Use, j.Devices[i], later(last, j.Start))
			}
		}
	}
}

// add takes in the part of what is said that is of the job's time.
func (u *Use) add(said *cluster.Use, devices uint64, from time.Time) {
	for _, g := range said.GPUs {
		if devices>>g.Device&1 == 1 {
			seen := max(said.Until.Sub(later(from, said.Until.Add(-said.Of))).Seconds(), 0)
			u.Seen, u.Busy = u.Seen+seen, u.Busy+seen*g.Busy
		}
	}
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// idle says which of the job's GPUs are idle, as of when its nodes last said so; what
// was said long ago, as nodes go, says nothing.
func (a *Arbiter) idle(j *Job) Idle {
	out := Idle{Job: j}
	if len(j.Devices) == 0 || j.Lease == nil || !holds(j.Lease) || j.State != cluster.Running {
		return out
	}
	for i, s := range j.On {
		n := a.nodeOf(s.Node)
		if n == nil || i >= len(j.Devices) || a.now.Sub(n.Use.Until) > 3*n.Use.Of+a.cfg.IdleAfter {
			continue
		}
		for _, g := range n.Use.GPUs {
			if since := later(g.Idle, j.Start); j.Devices[i]>>g.Device&1 == 1 && !g.Idle.IsZero() && n.Use.Until.Sub(since) >= a.cfg.IdleAfter {
				out.GPUs, out.Since = out.GPUs+1, later(out.Since, since)
			}
		}
	}
	return out
}

// wasted says whether the job's lease is not renewed while others need its GPUs: all have
// been idle.
func (a *Arbiter) wasted(j *Job) bool {
	if a.cfg.Idle != IdleReclaim {
		return false
	}
	n := a.idle(j).GPUs
	return n > 0 && n == j.Lease.gpus()
}

// wastedOf takes such leases out of those that have run out.
func (a *Arbiter) wastedOf(expired map[*Lease]bool) (out []*Lease) {
	for _, l := range a.live(a.runOut) {
		if expired[l] && a.wasted(a.jobs[l.Job]) {
			delete(expired, l)
			out = append(out, l)
		}
	}
	return out
}

// allServed says whether all that was bid for was won.
func (m *market) allServed() bool {
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			if _, ok := m.placed[g.ID]; !ok {
				return false
			}
		}
	}
	return true
}

// idlers lists the jobs with idle GPUs, the longest idle first.
func (a *Arbiter) idlers() (out []Idle) {
	for _, l := range a.leases {
		if i := a.idle(a.jobs[l.Job]); i.GPUs > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(x, y Idle) int { return x.Since.Compare(y.Since) })
	return out
}

// note is said to a running job of which GPUs are idle.
func (i *Idle) note(now time.Time) string {
	return fmt.Sprintf("%d of its %d GPUs idle since %s", i.GPUs, i.Job.Lease.gpus(), i.Since.In(now.Location()).Format("2006-01-02T15:04:05"))
}

// keepIdle lets jobs that waste their GPUs have them on if nobody else wants them.
func (m *market) keepIdle(a *Arbiter) {
	for _, l := range m.wasted {
		g := m.gang(a, a.jobs[l.Job])
		g.Held, g.Shape = l.On, a.jobs[l.Job].Shape
		for _, p := range m.space.PlaceAll([]auction.Gang{g}) {
			m.placed[p.Gang], m.length[p.Gang] = p, a.cfg.Lease
			m.kept = append(m.kept, g)
		}
	}
}
