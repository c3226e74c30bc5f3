// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"math"
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
	offered []auction.Node
	space   *auction.Space  // what is left of it
	held    map[*Lease]bool // up for renewal, GPUs on offer
	bids    []auction.Bid   // in the order of turns
	byJob   map[string]*Job
	scopes  map[string]*auction.Scope
	owner   map[string]string  // by app
	rates   map[string]float64 // of the virtual schedule, by app
	placed  map[string]auction.Placement
	length  map[string]time.Duration
	lease   time.Duration // a full one
	restart time.Duration // what leaving its GPUs costs a job
	biggest int           // GPUs of the largest node
	record  *Round
	sides   map[string]string // which host has each shared node
	awards  map[string]int    // how often a shared node got a host in this round
	evicted []*Lease          // that have run out on what is another host's now
	wasted  []*Lease          // that have run out under jobs which do nothing with them
	kept    []auction.Gang    // of these jobs, those that nobody else needs the GPUs of

	must      map[*Job]float64   // jobs that must not wait: see musts
	mustGroup map[string]bool    // groups with such a job
	owedTo    map[string]bool    // gangs that were served before the auction
	owed      [][]auction.Gang   // the same, as they were placed
	owing     map[string]float64 // their GPUs, by app
	speeds    map[string]*speeds // by hint
	faster    *Job               // of moving, the one that wants faster GPUs
	moving    map[string]*Lease  // by job: leases that end if the job finds a better place
}

func (a *Arbiter) market(expired map[*Lease]bool, sides map[string]string, awards map[string]int) *market {
	offer, rates := a.offer(expired), a.fluid.Rates()
	m := &market{offered: offer, space: auction.NewSpace(offer), held: expired, rates: rates, lease: a.cfg.Lease, restart: a.cfg.Restart, biggest: a.biggest,
		byJob: map[string]*Job{}, scopes: map[string]*auction.Scope{}, owner: map[string]string{},
		placed: map[string]auction.Placement{}, length: map[string]time.Duration{}, mustGroup: map[string]bool{},
		owedTo: map[string]bool{}, owing: map[string]float64{}, moving: map[string]*Lease{}, speeds: map[string]*speeds{}}
	m.sides, m.awards = sides, awards
	free := m.space.Free()
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
			byApp[app] = append(byApp[app], m.gang(a, j))
		}
	}
	wanted := 0
	for _, j := range m.byJob {
		wanted += j.Shape.Count()
	}
	if a.cfg.Reference == ReferenceFluid && wanted > free {
		m.must = a.musts(urgentLeases * a.cfg.Lease)
		for j := range m.must {
			m.mustGroup[j.Gang] = j.Gang != ""
		}
	}
	m.record = &Round{ID: a.ids.Round, At: a.now, Free: free, Apps: len(byApp)}
	bidding := map[string]int{} // apps by entity
	for app := range byApp {
		bidding[app.Entity]++
	}
	share := map[string]float64{} // GPUs by entity
	for _, app := range a.all {
		if bidding[app.Entity] > 0 {
			share[app.Entity] += rates[app.ID]
		}
	}
	for app, gangs := range byApp {
		m.urgentFirst(gangs)
		b := a.bid(app, gangs, rates[app.ID], share[app.Entity], expired)
		b.Owner, b.Weight = app.Entity, app.Weight/float64(bidding[app.Entity])
		m.owner[b.App] = b.Owner
		m.bids = append(m.bids, b)
	}
	slices.SortFunc(m.bids, func(x, y auction.Bid) int { return a.sooner(m, &x, &y) })
	return m
}

// list makes the records in the order of the bids.
func (m *market) list(a *Arbiter) {
	m.record.Bids = nil
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
}

// whole tells which gang groups have all their jobs waiting. The group of jobs
// that belong to none, "", always has.
func (a *Arbiter) whole() map[string]bool {
	out := map[string]bool{"": true}
	for _, j := range a.list() {
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
	for _, l := range a.live(a.runOut) {
		if !m.held[l] {
			continue
		}
		j := a.jobs[l.Job]
		if m.evicts(l, j.Host) {
			m.evicted = append(m.evicted, l)
			continue
		}
		if a.wasted(j) {
			m.wasted = append(m.wasted, l)
			continue
		}
		m.byJob[j.ID] = j
		g := m.gang(a, j)
		if m.keepTogether(j) && len(l.On) > 1 && a.worthMoving(j, l) {
			m.moving[j.ID] = l
		} else if m.speedUp(a, j, &g) {
			m.moving[j.ID] = l
		} else {
			g.Held, g.Shape = l.On, j.Shape
		}
		g.Restart = float64(l.gpus()) * a.cfg.Restart.Seconds()
		out[j.App] = append(out[j.App], g)
	}
	return out
}

// worthMoving says whether a job that is spread over machines saves more by
// having one to itself than the restart costs, half of it being for the risk.
func (a *Arbiter) worthMoving(j *Job, l *Lease) bool {
	left := a.left(j).Seconds()
	n := j.Shape.Count()
	return left*float64(n)/j.pace(n, cluster.SpanOf(l.On, a.rack))-left > 2*a.cfg.Restart.Seconds()
}

// stay lets jobs that would have moved, but found no better place, stay.
func (m *market) stay(a *Arbiter, length time.Duration) {
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			l := m.moving[g.ID]
			if _, ok := m.placed[g.ID]; ok || l == nil {
				continue
			}
			delete(m.moving, g.ID)
			g = m.gang(a, m.byJob[g.ID])
			g.Held, g.Shape = l.On, m.byJob[g.ID].Shape
			for _, p := range m.space.PlaceAll([]auction.Gang{g}) {
				m.placed[p.Gang], m.length[p.Gang] = p, length
			}
		}
	}
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
// each form of job counted apart, but not within a gang.
func usable(jobs []*Job, free int) []*Job {
	type form struct {
		cluster.Shape
		nodes int
		first string
	}
	wanted, large := map[form]int{}, map[form]int{}
	begun := map[string]bool{}
	out := jobs[:0:0]
	for _, j := range jobs {
		f := form{Shape: j.Shape}
		if !j.AnyNode && len(j.Nodes) > 0 {
			f.nodes, f.first = len(j.Nodes), j.Nodes[0]
		}
		if full := wanted[f] > free || large[f] > largeMost; full && !begun[j.Gang] {
			continue
		}
		begun[j.Gang] = j.Gang != ""
		if n := j.Shape.Count(); n <= free {
			wanted[f] += n
		} else {
			large[f]++
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

func (m *market) gang(a *Arbiter, j *Job) auction.Gang {
	least, times := j.Shape.Count(), 1.0
	g := auction.Gang{ID: j.ID, Group: j.Gang, Shape: j.Shape, Required: j.Required, Scope: m.scope(a, j),
		Rate: func(gpus int, l cluster.Level) float64 { return j.rate(gpus, l) * times }}
	if s := m.speedsOf(a, j); s != nil {
		times, g.Faster = s.least, s.sets
	}
	if m.keepTogether(j) {
		g.Shape.GPUsPerNode, g.Shape.NodesMax = least, 1
	}
	return g
}

// spreadLeast is S across machines below which a gang that fits into one machine
// is not spread over several while its app has time: what it would waste is better
// left to others.
const spreadLeast = 0.9

// keepTogether says whether the job, which may be split as one likes, is not.
func (m *market) keepTogether(j *Job) bool {
	return j.Shape.GPUsPerNode == 0 && j.Shape.NodesMin <= 1 && j.Shape.Count() <= m.biggest &&
		fairness.Speed(j.Hint, cluster.Rack) < spreadLeast
}

// offer is what is free, less what is spoken for, with what expired leases hold.
func (a *Arbiter) offer(expired map[*Lease]bool) []auction.Node {
	out := make([]auction.Node, 0, len(a.nodes))
	at := make([]int, len(a.nodes))   // in out, from 1
	held := make([]int, len(a.nodes)) // GPUs
	for _, l := range a.leases {
		if l.State == Held || l.State == Ending {
			for _, s := range l.On {
				if i, ok := a.node[s.Node]; ok {
					held[i] += s.GPUs
				}
			}
		}
	}
	gpus := make([]cluster.GPUs, 0, len(a.nodes)) // room for all
	inSlots := a.leased(holds)
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.State != cluster.NodeUp {
			continue
		}
		total, _ := n.TotalGPUs()
		unleased := max(total-held[i], 0)
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
			gpus = append(gpus, cluster.GPUs{Type: g.Type, Total: free})
			o.Real += free
		}
		o.GPUs = gpus[len(gpus)-len(n.GPUs) : len(gpus) : len(gpus)]
		if len(n.Slots) > 0 {
			room := room(n, inSlots[n.Name], cluster.InSlots{})
			for k := range n.Slots {
				o.Slots = append(o.Slots, min(int(room[k]), o.Real))
			}
		}
		out = append(out, o)
		at[i] = len(out)
	}
	// Leases not yet started come first: they have a claim on what is free, and
	// none on what running jobs hold.
	live := a.live(func(l *Lease) bool { return notStarted(l) || expired[l] })
	claim := func(match func(*Lease) bool, sign int) {
		for _, l := range live {
			for _, s := range l.On {
				if i, ok := a.node[s.Node]; ok && at[i] > 0 && match(l) {
					out[at[i]-1].Claim(a.jobs[l.Job].Shape, s.GPUs, len(l.On), sign, s.Slots)
				}
			}
		}
	}
	claim(func(l *Lease) bool { return l.State == Granted || l.State == Reserved }, -1)
	claim(func(l *Lease) bool { return expired[l] }, +1)
	return out
}

// leftovers gives what is free after the auction to whoever can use it, the apps
// in the order of their turns, each at most what fits.
func (m *market) leftovers(length time.Duration) {
	for i := range m.bids {
		m.serve(&m.bids[i], length)
	}
}

func (m *market) serve(b *auction.Bid, length time.Duration) {
	for k := 0; k < len(b.Gangs); {
		n := groupLen(b.Gangs, k)
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
	var won, missing []auction.Gang
	free := m.space.Free()
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			p, ok := m.placed[g.ID]
			switch {
			case m.owedTo[g.ID]:
			case ok && g.Shape.GPUsPerNode > 0 && len(p.On) > max(g.Shape.NodesMin, 1):
				return // it has grown
			case ok:
				won = append(won, g)
			case m.keepTogether(m.byJob[g.ID]) && m.byJob[g.ID].Shape.Count() <= free:
				missing = append(missing, g) // it needs but a better place
				free -= m.byJob[g.ID].Shape.Count()
			}
		}
	}
	if len(missing) > 0 && m.replace(res, append(missing, won...)) {
		return
	}
	if len(won) > 1 { // one alone has the tightest place already
		m.replace(res, won)
	}
}

// replace places these gangs anew, beside what was owed, and says whether it is
// better so.
func (m *market) replace(res *auction.Result, gangs []auction.Gang) bool {
	auction.TightestFirst(gangs)
	space := m.untouched()
	places := space.PlaceAll(gangs)
	if len(places) != len(gangs) {
		return false
	}
	moved := make(map[string]auction.Placement, len(places))
	for _, p := range places {
		moved[p.Gang] = p
	}
	for id := range m.owedTo {
		moved[id] = m.placed[id]
	}
	if m.welfare(moved) <= m.welfare(m.placed)+1e-9 || !res.Adopt(moved) {
		return false
	}
	for id := range moved {
		if _, ok := m.length[id]; !ok {
			m.length[id] = m.lease
		}
	}
	m.placed, m.space = moved, space
	return true
}

// untouched is what the auction had on offer.
func (m *market) untouched() *auction.Space {
	s := auction.NewSpace(m.offered)
	for _, group := range m.owed {
		s.PlaceAll(group)
	}
	return s
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

// groupLen is how many gangs from the k-th on start together.
func groupLen(gangs []auction.Gang, k int) int {
	n := 1
	for gangs[k].Group != "" && k+n < len(gangs) && gangs[k+n].Group == gangs[k].Group {
		n++
	}
	return n
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
	who := "another app"
	for _, r := range m.record.Bids {
		for _, p := range r.Places {
			for _, s := range l.On {
				switch {
				case p.Node != s.Node:
				case r.App != l.App:
					return fmt.Sprintf("%s (rho %.2f)", r.App, r.Rho)
				default:
					who = "another job of its app"
				}
			}
		}
	}
	return who
}
