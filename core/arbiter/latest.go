// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"themis/core/auction"
)

// musts are the jobs that cannot wait: those with work before the horizon in
// the latest schedule that still ends every app by its reference. It is built
// backwards from the last reference on, as late as possible, as a fluid: between
// two references the apps that end after both share the GPUs, the longest job
// first, none with more than it can use. What does not fit after the horizon must
// be done before it. Apps with slack can be served in any order as long as these
// jobs run. Jobs of several sizes only bid, and so do all if none of these takes
// longer than a lease, as then the next auction comes soon enough. The value is
// when a job has to start at the latest, in seconds from now, or nearlyDone.
func (a *Arbiter) musts(horizon time.Duration) map[*Job]float64 {
	var items []lateJob
	must := map[*Job]float64{}
	for _, app := range a.all {
		if !app.Ended.IsZero() || app.Reference.IsZero() {
			continue
		}
		for _, j := range app.jobs {
			if j.done {
				continue
			}
			if l := j.Lease; l != nil && l.State == Held && a.left(j) < a.cfg.Lease {
				must[j] = nearlyDone // to stop it would cost more than it frees
				continue
			}
			n := j.size()
			left := n * (max(j.Estimate.Total-j.Attained, 0).Seconds() + float64(j.MoreTasks)*j.Estimate.Total.Seconds())
			items = append(items, lateJob{j, left, j.widest() * float64(1+j.MoreTasks), left, a.deadline(app).Sub(a.now).Seconds()})
		}
	}
	slices.SortStableFunc(items, func(x, y lateJob) int { return cmp.Compare(y.end, x.end) })
	gpus := float64(a.gpus())
	first, long := horizon.Seconds(), false
	var active []lateJob
	for i := 0; i < len(items); {
		at := items[i].end
		for i < len(items) && items[i].end >= at-latestStep*horizon.Seconds() {
			active = append(active, items[i])
			i++
		}
		next := first
		if i < len(items) {
			next = max(next, items[i].end)
		}
		span := items[i-1].end - next
		if span <= 0 {
			continue
		}
		level := levelOf(active, gpus*span, span)
		for k := range active {
			active[k].left -= active[k].width * active[k].above(level, span)
		}
		active = slices.DeleteFunc(active, func(it lateJob) bool { return it.left < 1e-6 })
	}
	for _, it := range active {
		if it.job.Shape.NodesMax > max(it.job.Shape.NodesMin, 1) {
			continue // how many nodes it gets is for its bid to say
		}
		if at := min(first-it.left/max(it.width, 1e-9), it.end-it.all/max(it.width, 1e-9)); at < a.cfg.Lease.Seconds()*owedBy {
			must[it.job] = at
			long = long || it.job.Estimate.Total >= a.cfg.Lease
		}
	}
	if !long {
		return nil
	}
	return must
}

// nearlyDone marks a running job that ends within a lease: it comes first.
var nearlyDone = math.Inf(-1)

// latestStep is how many horizons apart references may be and count as one, the
// earlier.
const latestStep = 0.25

// deadline is when the app should have ended.
func (a *Arbiter) deadline(app *App) time.Time {
	t := cmp.Or(a.cfg.Target, 1)
	return app.Submit.Add(time.Duration(t * float64(app.Reference.Sub(app.Submit))))
}

// lateJob is a job in the latest schedule.
type lateJob struct {
	job         *Job
	left, width float64 // GPU-seconds not yet placed, GPUs
	all         float64 // GPU-seconds
	end         float64 // seconds from now
}

// above is for how long the job runs in a span that leaves no job with more than
// level seconds to go.
func (j *lateJob) above(level, span float64) float64 {
	return min(max(j.left/max(j.width, 1e-9)-level, 0), span)
}

// levelOf is the lowest level that so much room, in GPU-seconds, can bring all
// jobs to: so equal jobs are put off equally.
func levelOf(jobs []lateJob, room, span float64) float64 {
	lo, hi := 0.0, 0.0
	used := func(level float64) (sum float64) {
		for k := range jobs {
			sum += jobs[k].width * jobs[k].above(level, span)
		}
		return sum
	}
	if used(0) <= room {
		return 0
	}
	for k := range jobs {
		hi = max(hi, jobs[k].left/max(jobs[k].width, 1e-9))
	}
	for hi-lo > span*levelStep {
		if mid := (lo + hi) / 2; used(mid) > room {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// levelStep is how exact a level is, as a part of the span.
const levelStep = 1e-4

// owedBy is the part of a lease within which a job must start to be owed GPUs.
const owedBy = 0.9

// urgentFirst puts the jobs that must not wait before all others of their app,
// those first that must start first. If the app has another rule than the longest
// first, it is the first by that rule that do not wait. Jobs that start together
// stay in the order that they have (divide).
func (m *market) urgentFirst(gangs []auction.Gang) {
	rule, together, n := false, false, 0
	at := math.Inf(1)
	for i := range gangs {
		j := m.byJob[gangs[i].ID]
		rule, together = rule || j.Hint.Order != "" && j.Hint.Order != "long", together || j.Gang != ""
		if s, ok := m.must[j]; ok && s != nearlyDone {
			n, at = n+1, min(at, s)
		}
	}
	if rule && !together && n > 0 {
		for i := range gangs {
			j := m.byJob[gangs[i].ID]
			if m.must[j] == nearlyDone {
				continue
			}
			if delete(m.must, j); n > 0 {
				m.must[j] = at
			}
			n--
		}
	}
	slices.SortStableFunc(gangs, func(x, y auction.Gang) int {
		if c := cmp.Compare(m.later(&x), m.later(&y)); c != 0 || together {
			return c
		}
		return cmp.Compare(m.startBy(&x), m.startBy(&y))
	})
}

// startBy is when a job must start, in seconds from now. One that runs goes first
// but for more than two restarts, as in worthMoving.
func (m *market) startBy(g *auction.Gang) float64 {
	j := m.byJob[g.ID]
	if j.Lease != nil {
		return m.must[j] - 2*m.restart.Seconds()
	}
	return m.must[j]
}

// later is 0 for a job that must not wait: its app could not end by its
// reference if it did. Of jobs that start together none must wait if one must not.
func (m *market) later(g *auction.Gang) int {
	if _, ok := m.must[m.byJob[g.ID]]; ok || m.mustGroup[g.Group] {
		return 0
	}
	return 1
}

// sooner compares two bids by which is served first: with a job that must not wait,
// and of these the one whose app should end first; else by whose turn it is.
func (a *Arbiter) sooner(m *market, x, y *auction.Bid) int {
	p, q := a.apps[x.App], a.apps[y.App]
	critical := m.critical(x) > 0
	switch {
	case critical != (m.critical(y) > 0):
		if critical {
			return -1
		}
		return 1
	case critical:
		return cmp.Or(a.deadline(p).Compare(a.deadline(q)), a.turn(p, q))
	}
	return a.turn(p, q)
}

// critical is how many gangs of a bid, from its first on, must not wait.
func (m *market) critical(b *auction.Bid) int {
	n := 0
	for n < len(b.Gangs) && m.later(&b.Gangs[n]) == 0 {
		n++
	}
	return n
}

// serveOwed serves the jobs that must not wait, before the auction divides the rest:
// what an app needs now to end by its reference is not up for bids.
func (m *market) serveOwed(a *Arbiter) {
	for _, last := range []bool{true, false} {
		for i := range m.bids {
			b := &m.bids[i]
			for k, n := 0, m.critical(b); k < n; {
				group := b.Gangs[k : k+groupLen(b.Gangs, k)]
				k += len(group)
				if (m.must[m.byJob[group[0].ID]] == nearlyDone) != last {
					continue
				}
				m.giveOwed(b, group)
			}
		}
	}
	for i := range m.bids {
		for k := range m.critical(&m.bids[i]) {
			g := m.bids[i].Gangs[k] // a copy
			if _, ok := m.placed[g.ID]; ok || !m.keepTogether(m.byJob[g.ID]) {
				continue
			}
			g.Shape = m.byJob[g.ID].Shape
			m.giveOwed(&m.bids[i], []auction.Gang{g})
		}
	}
	slices.SortStableFunc(m.bids, func(x, y auction.Bid) int { return a.turn(a.apps[x.App], a.apps[y.App]) })
}

func (m *market) giveOwed(b *auction.Bid, group []auction.Gang) {
	for _, p := range m.space.PlaceAll(group) {
		m.placed[p.Gang], m.length[p.Gang] = p, m.lease
		m.owing[b.App] += p.Rate
		m.owedTo[p.Gang] = true
		if p.Gang == group[0].ID {
			m.owed = append(m.owed, group)
		}
	}
}

// open is the bid less what it was owed.
func (m *market) open(b auction.Bid) auction.Bid {
	b.Base += m.owing[b.App]
	var left []auction.Gang
	for _, g := range b.Gangs {
		if _, ok := m.placed[g.ID]; !ok {
			left = append(left, g)
		}
	}
	b.Gangs = left
	return b
}
