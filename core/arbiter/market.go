// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
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
	bids   []auction.Bid   // in the order of turns
	byJob  map[string]*Job
	scopes map[string]*auction.Scope
	owner  map[string]string  // by app
	rates  map[string]float64 // of the virtual schedule, by app
	placed map[string]auction.Placement
	length map[string]time.Duration
	record *Round
}

func (a *Arbiter) market(expired map[*Lease]bool) *market {
	m := &market{held: expired, byJob: map[string]*Job{}, scopes: map[string]*auction.Scope{}, owner: map[string]string{},
		placed: map[string]auction.Placement{}, length: map[string]time.Duration{}}
	offer := a.offer(expired)
	m.space, m.fresh = auction.NewSpace(offer), auction.NewSpace(offer)
	free := m.space.Free()
	rates := a.fluid.Rates()
	m.rates = rates
	byApp := m.renewals(a)
	waiting, siblings := map[*App][]*Job{}, a.whole()
	for _, j := range a.list() {
		if a.wants(j) && siblings[j.Gang] {
			waiting[j.App] = append(waiting[j.App], j)
		}
	}
	for app, jobs := range waiting {
		for _, j := range usable(divide(jobs), free) {
			m.byJob[j.ID] = j
			byApp[app] = append(byApp[app], m.gang(j))
		}
	}
	a.ids.Round++
	m.record = &Round{ID: a.ids.Round, At: a.now, Free: free, Apps: len(byApp)}
	bidding := map[string]int{} // apps by entity
	for app := range byApp {
		bidding[app.Entity]++
	}
	share := map[string]float64{} // GPUs by entity
	for id, rate := range rates {
		if app := a.apps[id]; app != nil {
			share[app.Entity] += rate
		}
	}
	for app, gangs := range byApp {
		b := a.bid(app, gangs, rates[app.ID], share[app.Entity], expired)
		b.Owner, b.Weight = app.Entity, app.Weight/float64(bidding[app.Entity])
		m.owner[b.App] = b.Owner
		m.bids = append(m.bids, b)
	}
	slices.SortFunc(m.bids, func(x, y auction.Bid) int { return a.turn(a.apps[x.App], a.apps[y.App]) })
	for i := range m.bids {
		b := &m.bids[i]
		app := a.apps[b.App]
		r := BidRecord{App: b.App, Rho: app.Rho, Slack: app.slack, Source: worstSource(m, b)}
		r.After = r.Rho
		for _, g := range b.Gangs {
			r.Wanted += m.byJob[g.ID].most()
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

// renewals are the gangs of leases that have run out, by app, the oldest first.
func (m *market) renewals(a *Arbiter) map[*App][]auction.Gang {
	out := map[*App][]auction.Gang{}
	for _, l := range a.live() {
		if !m.held[l] {
			continue
		}
		j := a.jobs[l.Job]
		m.byJob[j.ID] = j
		g := m.gang(j)
		g.Held = l.On
		g.Restart = float64(l.gpus()) * a.cfg.Restart.Seconds()
		out[j.App] = append(out[j.App], g)
	}
	return out
}

// divide puts an app's waiting jobs, which are in the order of submission, into
// the order in which the app itself starts them: by the order= of its newest
// job. Jobs that start together keep theirs.
func divide(jobs []*Job) []*Job {
	rule := ""
	for _, j := range jobs {
		if j.Gang != "" {
			return jobs
		}
		rule = cmp.Or(j.Hint.Order, rule)
	}
	left := func(j *Job) time.Duration { return j.Estimate.Total - j.Attained }
	gpus := func(j *Job) int { return j.Shape.Count() }
	slices.SortStableFunc(jobs, func(x, y *Job) int {
		switch rule {
		case "short":
			return cmp.Compare(left(x), left(y))
		case "long":
			return cmp.Compare(left(y), left(x))
		case "small":
			return cmp.Compare(gpus(x), gpus(y))
		case "large":
			return cmp.Compare(gpus(y), gpus(x))
		}
		return 0
	})
	return jobs
}

// usable cuts an app's queue where it has asked for more than all that is free,
// but not within a gang.
func usable(jobs []*Job, free int) []*Job {
	wanted, large := 0, 0
	begun := map[string]bool{}
	out := jobs[:0:0]
	for _, j := range jobs {
		if full := wanted > free || large > largeMost; full && !begun[j.Gang] {
			continue
		}
		begun[j.Gang] = j.Gang != ""
		if n := j.Shape.Count(); n <= free {
			wanted += n
		} else {
			large++
		}
		out = append(out, j)
	}
	return out
}

// bid is the app's valuation of any offer; fair and share are the GPUs that the
// app and its entity have in the virtual schedule.
func (a *Arbiter) bid(app *App, gangs []auction.Gang, fair, share float64, expired map[*Lease]bool) auction.Bid {
	o := a.outlook(app, fair)
	o.Owed = a.owed(app.Entity, share)
	return auction.Bid{App: app.ID, Order: app.Order, Gangs: gangs, Base: a.heldRate(app, expired),
		Rho: func(rate, lost float64) float64 {
			with := o
			with.Work += lost
			return with.Bid(rate)
		}}
}

// worstSource is the least that is known of the run time of any job in a bid.
func worstSource(m *market, b *auction.Bid) fairness.Source {
	known := []fairness.Source{fairness.Reported, fairness.Declared, fairness.Corrected, fairness.History, fairness.Limit, fairness.Guess}
	worst := 0
	for _, g := range b.Gangs {
		worst = max(worst, slices.Index(known, m.byJob[g.ID].Estimate.Source))
	}
	return known[worst]
}

func (m *market) gang(j *Job) auction.Gang {
	least := j.Shape.Count()
	g := auction.Gang{ID: j.ID, Group: j.Gang, Shape: j.Shape, Required: j.Required,
		Rate: func(gpus int, l cluster.Level) float64 { return fairness.Rate(j.Hint, least, gpus, l) }}
	if !j.AnyNode {
		key := strings.Join(j.Nodes, "\x00")
		if m.scopes[key] == nil {
			m.scopes[key] = auction.NewScope(j.Nodes)
		}
		g.Scope = m.scopes[key]
	}
	return g
}

// offer is what is free, less what is spoken for, with what expired leases hold.
func (a *Arbiter) offer(expired map[*Lease]bool) []auction.Node {
	out := make([]auction.Node, 0, len(a.nodes))
	index := map[string]int{}
	held := map[string]int{}
	for _, l := range a.leases {
		if l.State == Held || l.State == Ending {
			for _, s := range l.On {
				held[s.Node] += s.GPUs
			}
		}
	}
	for _, n := range a.nodes {
		if n.State != cluster.NodeUp {
			continue
		}
		total, _ := n.TotalGPUs()
		unleased := max(total-held[n.Name], 0)
		o := auction.Node{Name: n.Name, Rack: n.Rack, CPUs: -1, MemMiB: -1, Idle: n.CPUsUsed == 0}
		if n.CPUs > 0 {
			o.CPUs = n.CPUs - n.CPUsUsed
		}
		if n.MemMiB > 0 {
			o.MemMiB = n.MemMiB - n.MemUsed
		}
		for _, g := range n.GPUs {
			free := min(max(g.Total-g.Used, 0), unleased)
			unleased -= free
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
// worst-off app first, each at most what fits; to those from others on first.
func (m *market) leftovers(length time.Duration, others int) {
	for _, part := range [][]auction.Bid{m.bids[others:], m.bids[:others]} {
		for i := range part {
			m.serve(&part[i], length)
		}
	}
}

func (m *market) serve(b *auction.Bid, length time.Duration) {
	for k := 0; k < len(b.Gangs); {
		n := 1
		for b.Gangs[k].Group != "" && k+n < len(b.Gangs) && b.Gangs[k+n].Group == b.Gangs[k].Group {
			n++
		}
		if _, ok := m.placed[b.Gangs[k].ID]; !ok {
			for _, p := range m.space.PlaceAll(b.Gangs[k : k+n]) {
				m.placed[p.Gang], m.length[p.Gang] = p, length
			}
		}
		k += n
	}
}

// tighten places all that was won once more, together, so that a gang that
// loses most by spreading gets the tighter place whoever was served first. It is
// done if all bids together, those of apps outside the auction too, gain by it;
// what the auction's winners may lose is then part of the round's gap.
func (m *market) tighten(res *auction.Result) {
	var won []auction.Gang
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			if p, ok := m.placed[g.ID]; ok {
				if g.Shape.GPUsPerNode > 0 && len(p.On) > max(g.Shape.NodesMin, 1) {
					return // it has grown
				}
				won = append(won, g)
			}
		}
	}
	auction.TightestFirst(won)
	places := m.fresh.PlaceAll(won)
	if len(places) != len(won) {
		return
	}
	moved := make(map[string]auction.Placement, len(places))
	for _, p := range places {
		moved[p.Gang] = p
	}
	if m.welfare(moved) > m.welfare(m.placed)+1e-9 && res.Adopt(moved) {
		m.placed, m.space = moved, m.fresh
	}
}

// welfare is the sum of weight * log(1/rho) over all bids.
func (m *market) welfare(placed map[string]auction.Placement) float64 {
	var sum float64
	for i := range m.bids {
		b := &m.bids[i]
		rate, lost := b.Base, 0.0
		for _, g := range b.Gangs {
			if p, ok := placed[g.ID]; ok {
				rate += p.Rate
			} else {
				lost += g.Restart
			}
		}
		sum -= b.Weight * math.Log(b.Rho(rate, lost))
	}
	return sum
}

// widen lets moldable gangs have what nobody else could use, but for those that
// say by their curve how many nodes they want.
func (m *market) widen() {
	for i := range m.bids {
		for k := range m.bids[i].Gangs {
			g := &m.bids[i].Gangs[k]
			if p, ok := m.placed[g.ID]; ok && len(g.Held) == 0 && len(m.byJob[g.ID].Hint.Speedup) == 0 {
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
