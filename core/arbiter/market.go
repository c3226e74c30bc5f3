// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"themis/core/auction"
	"themis/core/cluster"
	"themis/core/fairness"
)

// largeMost is how many gangs larger than all that is free an app may bring
// before the rest of its queue is looked at no further.
const largeMost = 16

// market is what one round works on.
type market struct {
	space  *auction.Space
	fresh  *auction.Space  // as it was before the round
	held   map[*Lease]bool // up for renewal, GPUs on offer
	bids   []auction.Bid   // worst rho first
	byJob  map[string]*Job
	placed map[string]auction.Placement
	length map[string]time.Duration
	record *Round
}

func (a *Arbiter) market(expired map[*Lease]bool) *market {
	m := &market{held: expired, byJob: map[string]*Job{}, placed: map[string]auction.Placement{}, length: map[string]time.Duration{}}
	m.space, m.fresh = auction.NewSpace(a.offer(expired)), auction.NewSpace(a.offer(expired))
	free := m.space.Free()
	rates := a.fluid.Rates()
	byApp := map[*App][]auction.Gang{}
	for l := range expired {
		j := a.jobs[l.Job]
		m.byJob[j.ID] = j
		g := a.gang(j)
		g.Held = l.On
		byApp[j.App] = append(byApp[j.App], g)
	}
	for app := range byApp {
		slices.SortFunc(byApp[app], func(x, y auction.Gang) int { return cmp.Compare(x.ID, y.ID) })
	}
	wanted, large := map[*App]int{}, map[*App]int{}
	begun := map[string]bool{}
	siblings := a.whole()
	for _, j := range a.list() {
		// An app cannot use more than is free: the rest of its queue stays out.
		if !a.wants(j) || !siblings[j.Gang] {
			continue
		}
		if full := wanted[j.App] > free || large[j.App] > largeMost; full && !begun[j.Gang] {
			continue
		}
		m.byJob[j.ID] = j
		begun[j.Gang] = j.Gang != ""
		if n := j.Shape.Count(); n <= free {
			wanted[j.App] += n
		} else {
			large[j.App]++
		}
		byApp[j.App] = append(byApp[j.App], a.gang(j))
	}
	a.ids.Round++
	m.record = &Round{ID: a.ids.Round, At: a.now, Free: free, Apps: len(byApp)}
	for app, gangs := range byApp {
		m.bids = append(m.bids, a.bid(app, gangs, rates[app.ID], expired))
	}
	// Apps are ranked by how they fare with all that they hold now (paper
	// section 5.1, step 2), leases that have just run out included.
	rho := func(b *auction.Bid) float64 { return b.Rho(a.heldRate(a.apps[b.App], nil)) }
	slices.SortFunc(m.bids, func(x, y auction.Bid) int {
		return cmp.Or(cmp.Compare(rho(&y), rho(&x)), cmp.Compare(x.Order, y.Order))
	})
	for i := range m.bids {
		b := &m.bids[i]
		r := BidRecord{App: b.App, Rho: rho(b)}
		r.After = r.Rho
		for _, g := range b.Gangs {
			r.Wanted += g.Shape.Count()
		}
		m.record.Bids = append(m.record.Bids, r)
	}
	return m
}

// whole tells which gang groups have all their jobs waiting. The group of jobs
// that belong to none, "", always has.
func (a *Arbiter) whole() map[string]bool {
	out := map[string]bool{"": true}
	for _, j := range a.jobs {
		if j.Gang != "" && !j.done {
			ok, seen := out[j.Gang]
			out[j.Gang] = a.wants(j) && (ok || !seen)
		}
	}
	return out
}

// bid is the app's valuation of any offer.
func (a *Arbiter) bid(app *App, gangs []auction.Gang, fair float64, expired map[*Lease]bool) auction.Bid {
	o := a.outlook(app, fair)
	b := auction.Bid{App: app.ID, Order: app.Order, Gangs: gangs, Rho: o.Rho, Base: a.heldRate(app, expired)}
	for l := range expired {
		if l.App == app.ID { // losing them costs a restart
			lost := o
			lost.Work += float64(l.gpus()) * a.cfg.Restart.Seconds()
			lost.Now = lost.Now.Add(a.cfg.Restart)
			b.Lost = max(b.Lost, lost.Rho(b.Base))
		}
	}
	return b
}

func (a *Arbiter) gang(j *Job) auction.Gang {
	g := auction.Gang{ID: j.ID, Group: j.Gang, Shape: j.Shape, Required: j.Required,
		Speed: func(l cluster.Level) float64 { return fairness.Speed(j.Hint, l) }}
	if !j.AnyNode {
		ok := make(map[string]bool, len(j.Nodes))
		for _, n := range j.Nodes {
			ok[n] = true
		}
		g.Eligible = func(n string) bool { return ok[n] }
	}
	return g
}

// offer is what is free, less what is spoken for, with what expired leases hold.
func (a *Arbiter) offer(expired map[*Lease]bool) []auction.Node {
	out := make([]auction.Node, 0, len(a.nodes))
	index := map[string]int{}
	for _, n := range a.nodes {
		if n.State != cluster.NodeUp {
			continue
		}
		o := auction.Node{Name: n.Name, Rack: n.Rack, CPUs: -1, MemMiB: -1, Idle: n.CPUsUsed == 0}
		if n.CPUs > 0 {
			o.CPUs = n.CPUs - n.CPUsUsed
		}
		if n.MemMiB > 0 {
			o.MemMiB = n.MemMiB - n.MemUsed
		}
		for _, g := range n.GPUs {
			free := max(g.Total-g.Used, 0)
			if n.Exclusive { // one job has the rest of it, too
				free, o.CPUs, o.MemMiB = 0, min(o.CPUs, 0), min(o.MemMiB, 0)
			}
			o.GPUs = append(o.GPUs, cluster.GPUs{Type: g.Type, Total: free})
			o.Real += free
		}
		index[n.Name] = len(out)
		out = append(out, o)
	}
	// Leases not yet started come first: they have a claim on what is free, and
	// none on what running jobs hold.
	live := a.live()
	claim := func(match func(*Lease) bool, sign int) {
		for _, l := range live {
			for _, s := range l.On {
				if i, ok := index[s.Node]; ok && match(l) {
					out[i].Claim(a.jobs[l.Job].Shape, s.GPUs, len(l.On), sign)
				}
			}
		}
	}
	claim(func(l *Lease) bool { return l.State == Granted || l.State == Reserved }, -1)
	claim(func(l *Lease) bool { return expired[l] }, +1)
	return out
}

// leftovers gives what is free after the auction to whoever can use it, the
// worst-off app first, each at most what fits.
func (m *market) leftovers(length time.Duration) {
	for i := range m.bids {
		b := &m.bids[i]
		for k := 0; k < len(b.Gangs); k++ {
			group := []auction.Gang{b.Gangs[k]}
			for b.Gangs[k].Group != "" && k+1 < len(b.Gangs) && b.Gangs[k+1].Group == b.Gangs[k].Group {
				k++
				group = append(group, b.Gangs[k])
			}
			if _, ok := m.placed[group[0].ID]; ok {
				continue
			}
			for _, p := range m.space.PlaceAll(group) {
				m.placed[p.Gang], m.length[p.Gang] = p, length
			}
		}
	}
}

// tighten places all that was won once more, together, so that a gang that
// loses most by spreading gets the tighter place whoever was served first.
func (m *market) tighten() {
	var won []auction.Gang
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			if _, ok := m.placed[g.ID]; ok {
				won = append(won, g)
			}
		}
	}
	auction.TightestFirst(won)
	if places := m.fresh.PlaceAll(won); len(places) == len(won) {
		for _, p := range places {
			m.placed[p.Gang] = p
		}
		m.space = m.fresh
	}
}

// widen lets moldable gangs have what nobody else could use.
func (m *market) widen() {
	for i := range m.bids {
		for k := range m.bids[i].Gangs {
			g := &m.bids[i].Gangs[k]
			if p, ok := m.placed[g.ID]; ok && len(g.Held) == 0 {
				m.placed[g.ID] = m.space.Widen(g, p)
			}
		}
	}
}

// merge adds shares to a list that names each node once.
func merge(list, more []cluster.Share) []cluster.Share {
	for _, s := range more {
		if i := slices.IndexFunc(list, func(x cluster.Share) bool { return x.Node == s.Node }); i >= 0 {
			list[i].GPUs += s.GPUs
		} else {
			list = append(list, s)
		}
	}
	return list
}

// winner names an app that won GPUs on a node of the lease.
func (m *market) winner(l *Lease) string {
	for _, r := range m.record.Bids {
		for _, p := range r.Places {
			for _, s := range l.On {
				if p.Node == s.Node && r.App != l.App {
					return fmt.Sprintf("%s (rho %.2f)", r.App, r.Rho)
				}
			}
		}
	}
	return "another app"
}
