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

// backoffMost bounds how long a job steps back after grants nobody took up.
const backoffMost = 5 * time.Minute

// refer brings every app's reference and rho up to date.
func (a *Arbiter) refer() {
	a.going = 0
	for _, app := range a.all {
		if app.Ended.IsZero() {
			a.going++
		}
	}
	refs := a.fluid.Project()
	if a.cfg.Reference == ReferencePaper {
		refs = a.papers()
	}
	if len(refs) == 0 {
		return
	}
	for _, app := range a.all {
		ref, ok := refs[app.ID]
		if a.cfg.Reference != ReferencePaper && ref.Before(app.earliest) {
			ref = app.earliest
		}
		if ok && !ref.Equal(app.Reference) {
			moved := ref.Sub(app.Reference).Abs() > time.Second
			app.Reference = ref
			if moved {
				a.dirty[app] = true
			}
		}
	}
}

// endsEarliest is before when the app could not end on any cluster: a job that came
// late takes its time from then.
func (app *App) endsEarliest() time.Time {
	var at time.Time
	for _, j := range app.jobs {
		came := j.Submit
		if j.Eligible.After(came) {
			came = j.Eligible
		}
		if end := came.Add(time.Duration(float64(j.took()) * j.size() / max(j.widest(), minWidth))); end.After(at) {
			at = end
		}
	}
	return at
}

// rate recomputes rho: projected for apps that go on, final for ended ones. Where
// nobody reads it, only of those that it may matter to now.
func (a *Arbiter) rate() {
	rates := a.fluid.Rates()
	for _, app := range a.all {
		if a.cfg.Mute && !slices.ContainsFunc(app.jobs, a.atStake) {
			continue
		}
		rho := 0.0
		if app.Ended.IsZero() {
			o := a.outlook(app, rates[app.ID])
			rho, app.slack = o.Rho(a.heldRate(app, nil)), o.Slack(a.width(app))
			app.longest = o.Longest
		} else {
			rho = fairness.Final(app.Submit, app.Ended, app.Reference)
		}
		if math.Abs(rho-app.said) > 0.02*app.said {
			a.dirty[app] = true
			app.said = rho
		}
		app.Rho = rho
	}
}

// atStake says whether the job has GPUs to win or to lose.
func (a *Arbiter) atStake(j *Job) bool {
	return !j.done && (j.Lease == nil || j.Lease.State != Held || a.runOut(j.Lease))
}

// urgentLeases is how many leases ahead a job is looked at that must not wait:
// one may pass before its turn comes, and one until its GPUs are there.
const urgentLeases = 2

// turn compares two apps by whose turn it is, once all jobs that must not wait
// have been served (latest.go): who would end first in the virtual schedule (Fair
// Sojourn: Friedman and Henderson 2003), which shortens the mean, or with
// AimMakespan whose longest job has most to go. Against the paper's T_id, which is
// no schedule, the worst rho comes first, as in the paper (section 5.1, step 2).
func (a *Arbiter) turn(x, y *App) int {
	switch {
	case a.cfg.Reference == ReferencePaper:
		return cmp.Or(cmp.Compare(y.Rho, x.Rho), cmp.Compare(x.Order, y.Order))
	case a.cfg.Aim == AimMakespan:
		return cmp.Or(cmp.Compare(y.longest, x.longest), cmp.Compare(x.Order, y.Order))
	}
	return cmp.Or(x.Reference.Compare(y.Reference), cmp.Compare(x.Order, y.Order))
}

// outlook collects what the app's rho depends on now.
func (a *Arbiter) outlook(app *App, fair float64) fairness.Outlook {
	o := fairness.Outlook{Now: a.now, Submit: app.Submit, Reference: app.Reference,
		FairRate: fair, Lease: a.cfg.Lease}
	for _, j := range app.jobs {
		if j.done {
			continue
		}
		n := j.size()
		left := max(j.Estimate.Total-j.Attained, 0)
		o.Work += n*left.Seconds() + n*float64(j.MoreTasks)*j.Estimate.Total.Seconds()
		o.Longest = max(o.Longest, time.Duration(float64(left)*n/max(j.widest(), n, minWidth)/max(j.fastest, 1)))
	}
	if o.FairRate == 0 { // its virtual run is over: what it would get now
		o.FairRate = min(a.width(app), float64(a.gpus())/float64(max(a.going, 1)))
	}
	return o
}

// width is the speed of the app, in GPUs, if all its jobs ran.
func (a *Arbiter) width(app *App) float64 {
	var par float64
	for _, j := range app.jobs {
		if !j.done {
			par += j.widest() * float64(1+j.MoreTasks)
		}
	}
	return par
}

// most is the number of GPUs with which the job is fastest, as far as its curve
// says; whole nodes of them.
func (j *Job) most() int {
	least, per := j.Shape.Count(), j.Shape.GPUsPerNode
	fastest := least
	for _, p := range j.Hint.Speedup {
		n := min((p.GPUs+max(per, 1)-1)/max(per, 1), j.Shape.NodesMax) * per
		if n > fastest && fairness.Rate(j.Hint, least, n, cluster.Machine) > fairness.Rate(j.Hint, least, fastest, cluster.Machine) {
			fastest = n
		}
	}
	return fastest
}

// widest is the job's speed then, in GPUs.
func (j *Job) widest() float64 {
	if j.wide == 0 {
		j.wide = j.rate(j.most(), cluster.Slot)
	}
	return j.wide
}

// heldRate is the rate of the app's leases, those in except left out.
func (a *Arbiter) heldRate(app *App, except map[*Lease]bool) float64 {
	var rate float64
	for _, j := range app.jobs {
		if l := j.Lease; l != nil && !except[l] && l.State != Ending {
			if l.rate == 0 {
				l.rate = j.rate(l.gpus(), cluster.SpanOf(l.On, a.rack)) * a.times(j, l.On)
			}
			rate += l.rate
		}
	}
	return rate
}

// timeouts ends what has waited too long: grants nobody took up, gatherings
// past their deadline.
func (a *Arbiter) timeouts() {
	for _, l := range a.live(notHeld) {
		j := a.jobs[l.Job]
		switch {
		case l.State == Granted && a.now.After(l.Deadline):
			where := "anywhere"
			if !l.Anywhere {
				where = "on " + nodeList(l.On)
			}
			a.over(l, "not taken up by the host")
			j.fails++
			j.blocked = a.now // if the host has a reason, it stands again
			j.Note = fmt.Sprintf("the host did not start it %s within %s", where, a.cfg.TakeUp)
			if j.fails > 1 {
				j.backoff = a.now.Add(min(a.cfg.TakeUp<<min(j.fails, 8), backoffMost))
			}
			a.changed.Jobs = append(a.changed.Jobs, j)
		case l.State == Ending && j.State == cluster.Running && !a.reclaimable(j):
			// Its owner took the permission back; the host would refuse.
			l.State, l.Warned = Held, ""
			a.renew(l, a.cfg.Lease)
		case l.State == Ending && a.now.Before(l.Deadline) && !l.moves && !a.promised(l):
			// Who won its GPUs is gone; it has had its warning for nothing.
			l.State, l.Warned = Held, ""
			a.renew(l, a.cfg.Lease)
		case l.State == Reserved && a.now.After(l.Deadline):
			a.over(l, "its GPUs could not be gathered in time")
			j.Note = fmt.Sprintf("nodes were kept free for it for %s in vain", a.cfg.GatherLimit)
			j.backoff = a.now.Add(a.cfg.Lease)
		}
	}
	for _, j := range a.list() {
		if !j.backoff.IsZero() && !a.now.Before(j.backoff) {
			j.backoff = time.Time{}
			a.stir()
		}
	}
	for _, l := range a.leases {
		if l.State == Held && !a.now.Before(l.Expires) {
			a.stir()
		}
	}
}

// promised says whether anybody waits for GPUs of the lease's nodes.
func (a *Arbiter) promised(l *Lease) bool {
	for _, o := range a.leases {
		if o.State == Reserved && slices.ContainsFunc(o.On, func(s cluster.Share) bool {
			return slices.ContainsFunc(l.On, func(t cluster.Share) bool { return s.Node == t.Node })
		}) {
			return true
		}
	}
	return false
}

// promote announces reserved leases whose GPUs have become free.
func (a *Arbiter) promote() {
	waits := map[string]bool{} // gangs of which a part is not ready
	var ready []*Lease
	for _, l := range a.live(notStarted) {
		if l.State != Reserved {
			continue
		}
		gang, free := a.jobs[l.Job].Gang, true
		for _, s := range l.On {
			n := a.nodeOf(s.Node)
			if n == nil || a.unclaimed(n) < s.GPUs || a.busyElsewhere(n, a.jobs[l.Job].Host) ||
				a.jobs[l.Job].Shape.Exclusive && n.CPUsUsed > 0 {
				free = false
			}
		}
		if free {
			ready = append(ready, l)
			l.State = Granted // so that the next one counts it
		} else if gang != "" {
			waits[gang] = true
		}
	}
	for _, l := range ready {
		if l.State = Reserved; !waits[a.jobs[l.Job].Gang] {
			a.place(l)
			l.State, l.Granted, l.Deadline = Granted, a.now, a.now.Add(a.cfg.TakeUp)
			a.changed.Leases = append(a.changed.Leases, l)
		}
	}
}

// unclaimed is how many of a node's GPUs nobody has a lease on. A host frees a
// job's GPUs a little before the job has ended for good: until then they are
// under its lease.
func (a *Arbiter) unclaimed(n *cluster.Node) int {
	total, _ := n.TotalGPUs()
	granted := a.claimed(n.Name, func(l *Lease) bool { return l.State == Granted })
	held := a.claimed(n.Name, func(l *Lease) bool { return l.State == Held || l.State == Ending })
	return min(freeOf(n), total-held) - granted
}

// claimed counts the node's GPUs under leases that match.
func (a *Arbiter) claimed(node string, match func(*Lease) bool) int {
	var n int
	for _, l := range a.leases {
		if match(l) {
			for _, s := range l.On {
				if s.Node == node {
					n += s.GPUs
				}
			}
		}
	}
	return n
}

// wants says whether a job bids in a round now.
func (a *Arbiter) wants(j *Job) bool {
	return !j.done && j.App != nil && j.State == cluster.Pending && !a.heldBack(j) &&
		j.Lease == nil && !a.now.Before(j.backoff) && j.Shape.Count() > 0
}

// reclaimable says whether a lease can end under the job.
func (a *Arbiter) reclaimable(j *Job) bool {
	switch a.cfg.Reclaim {
	case ReclaimDeclared:
		return j.Requeueable && j.Hint.Checkpoint > 0
	case ReclaimRequeueable:
		return j.Requeueable
	}
	return false
}

// auction holds a round: the worst 1-f of the apps bid for all that is free
// and for the GPUs of leases that have run out; what is left goes to the
// others, the worst-off first.
func (a *Arbiter) auction() {
	a.event = time.Time{}
	expired := a.expired()
	if !slices.ContainsFunc(a.list(), a.seeks) {
		for _, l := range a.live(a.runOut) {
			if expired[l] {
				a.renew(l, a.cfg.Lease)
			}
		}
		return
	}
	a.ids.Round++
	idle := a.wastedOf(expired)
	m := a.contest(expired)
	if len(idle) > 0 && !m.allServed() { // then those are on offer, too
		for _, l := range idle {
			expired[l] = true
		}
		m, idle = a.contest(expired), nil
	}
	for _, l := range idle {
		a.renew(l, a.cfg.Lease)
	}
	if len(m.bids) == 0 || m.record.Free == 0 {
		for _, l := range m.wasted {
			a.renew(l, a.cfg.Lease)
		}
		a.gather(m)
		return
	}
	a.settle(m)
	a.promote()
	a.gather(m)
}

// contest holds the round until each shared node is one host's.
func (a *Arbiter) contest(expired map[*Lease]bool) *market {
	sides, awards := a.sides(expired), map[string]int{}
	m := a.hold(expired, sides, awards)
	bound := m.record.Bound // as if hosts could mix
	for n := 1; m.award(a, n == contestsMost); n++ {
		m = a.hold(expired, sides, awards)
		m.record.Bound, m.record.Exact = max(m.record.Bound, bound), false
	}
	return m
}

// hold holds the round, as far as nothing of it is kept.
func (a *Arbiter) hold(expired map[*Lease]bool, sides map[string]string, awards map[string]int) *market {
	m := a.market(expired, sides, awards)
	if len(m.bids) == 0 || m.record.Free == 0 {
		return m
	}
	m.serveOwed(a)
	m.list(a)
	in := m.participants(a.cfg.F)
	var bids []auction.Bid
	for _, b := range m.bids[:in] {
		if b = m.open(b); len(b.Gangs) > 0 {
			bids = append(bids, b)
		}
	}
	res := auction.Run(m.space, bids)
	if a.cfg.Payment == PayGPUs {
		res.Withhold(m.space)
	}
	byApp := map[string]*BidRecord{}
	for i := range m.bids {
		if slices.ContainsFunc(bids, func(b auction.Bid) bool { return b.App == m.bids[i].App }) {
			m.record.Bids[i].In = true
			byApp[m.bids[i].App] = &m.record.Bids[i]
		}
	}
	for _, w := range res.Awards {
		rec := byApp[w.App]
		rec.Payment, rec.PaymentLow = w.Payment, w.PaymentLow
		length := a.cfg.Lease
		if a.cfg.Payment == PayLease {
			length = max(time.Duration(w.Payment*float64(a.cfg.Lease)), min(a.cfg.LeaseMin, a.cfg.Lease))
		}
		for _, p := range w.Places {
			m.placed[p.Gang], m.length[p.Gang] = p, length
		}
	}
	for _, w := range res.Wishes {
		byApp[w.App].Gain, byApp[w.App].Price = w.Gain, w.Price
	}
	m.stay(a, a.cfg.Lease)
	m.leftovers(a.cfg.Lease)
	m.tighten(&res)
	m.keepIdle(a)
	m.record.Welfare, m.record.Bound, m.record.Exact = res.Welfare, res.Bound, res.Exact
	m.record.Proof = res.Proof()
	m.widen()
	m.divideSlots(a)
	return m
}

// participants puts those first who take part in the auction, and counts them:
// the 1-f of the apps whose turn it is (paper section 5.1, step 2), with all
// other apps of their owners, so that an owner gains nothing by having some of
// its work served from what is left, where nobody pays.
func (m *market) participants(f float64) int {
	in := max(int(math.Floor((1-f)*float64(len(m.bids)))), 1)
	owners := map[string]bool{}
	for _, b := range m.bids[:in] {
		owners[b.Owner] = true
	}
	outside := func(app string) int {
		if owners[m.owner[app]] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(m.bids, func(x, y auction.Bid) int { return cmp.Compare(outside(x.App), outside(y.App)) })
	slices.SortStableFunc(m.record.Bids, func(x, y BidRecord) int { return cmp.Compare(outside(x.App), outside(y.App)) })
	for in < len(m.bids) && owners[m.bids[in].Owner] {
		in++
	}
	return in
}

// expired returns the held leases that have run out and can end; those that
// cannot are renewed.
func (a *Arbiter) expired() map[*Lease]bool {
	out := map[*Lease]bool{}
	for _, l := range a.live(a.runOut) {
		if l.State != Held || a.now.Before(l.Expires) {
			continue
		}
		if j := a.jobs[l.Job]; a.reclaimable(j) && j.State == cluster.Running && a.onOffer(l) {
			out[l] = true
		} else {
			a.renew(l, a.cfg.Lease)
		}
	}
	return out
}

// onOffer says whether the lease's GPUs could go to others: those of a node
// that takes nothing new could not.
func (a *Arbiter) onOffer(l *Lease) bool {
	return !slices.ContainsFunc(l.On, func(s cluster.Share) bool {
		n := a.nodeOf(s.Node)
		return n == nil || n.State != cluster.NodeUp
	})
}

// ends is when a lease of this length that begins now ends: on the grid if there
// is one, so that what comes free comes free together.
func (a *Arbiter) ends(length time.Duration) time.Time {
	at := a.now.Add(length)
	if g := a.cfg.Grid; g > 0 {
		if at = at.Truncate(g); !at.After(a.now) {
			at = at.Add(g)
		}
	}
	return at
}

func (a *Arbiter) renew(l *Lease, length time.Duration) {
	l.Length, l.Expires = length, a.ends(length)
	l.Renewals++
	a.changed.Leases = append(a.changed.Leases, l)
}

// renewInSilence renews leases that ran out while no job wanted GPUs, as of then:
// so a host need not ask only for that.
func (a *Arbiter) renewInSilence() {
	if !a.quiet {
		return
	}
	now := a.now
	for _, l := range a.live(a.runOut) {
		for l.Expires.Before(now) {
			a.now = l.Expires
			a.renew(l, a.cfg.Lease)
		}
	}
	a.now = now
}

// list returns the jobs in the order in which an app starts them.
func (a *Arbiter) list() []*Job {
	if a.queue == nil {
		a.queue = make([]*Job, 0, len(a.jobs))
		for _, j := range a.jobs {
			a.queue = append(a.queue, j)
		}
		slices.SortFunc(a.queue, before)
	}
	return a.queue
}

func before(x, y *Job) int { return submitted(&x.Job, &y.Job) }

// enlist puts a new job into the list.
func (a *Arbiter) enlist(j *Job) {
	if a.queue != nil {
		at, _ := slices.BinarySearchFunc(a.queue, j, before)
		a.queue = slices.Insert(a.queue, at, j)
	}
}

// settle turns placements into leases: renewals, grants, endings.
func (a *Arbiter) settle(m *market) {
	for i, b := range m.bids {
		rec := &m.record.Bids[i]
		rate, lost := b.Base, 0.0
		for _, g := range b.Gangs {
			p, won := m.placed[g.ID]
			if !won {
				lost += g.Restart
				continue
			}
			rate += p.Rate
			for _, s := range p.On {
				rec.Won += s.GPUs
			}
			rec.Places = merge(rec.Places, p.On)
			if rec.Payment == 0 {
				rec.Payment = 1
			}
			j := m.byJob[g.ID]
			if l := m.moving[g.ID]; l != nil {
				l.State, l.Deadline = Ending, a.now.Add(a.cfg.Grace)
				l.Warned = "it can have a machine to itself"
				if m.faster == j {
					l.Warned, l.moves = "it can have faster GPUs", true
				}
				a.changed.Leases = append(a.changed.Leases, l)
				continue
			}
			if j.Lease != nil {
				a.renew(j.Lease, m.length[g.ID])
				continue
			}
			if a.cfg.Payment != PayNone && !a.reclaimable(j) {
				a.lend(j.App.Entity, (1-rec.Payment)*float64(j.Shape.Count())*a.cfg.Lease.Seconds())
			}
			l := a.newLease(j, m.record.ID, p.On, m.length[g.ID])
			l.State, l.Deadline = Reserved, a.now.Add(a.cfg.GatherLimit)
			l.Anywhere = j.fails > 0
		}
		o := a.outlook(a.apps[b.App], m.rates[b.App])
		o.Work += lost
		rec.After = o.Rho(rate)
	}
	for _, l := range a.live(a.runOut) {
		if !m.held[l] {
			continue
		}
		wasted := slices.Contains(m.wasted, l)
		if _, won := m.placed[l.Job]; !won {
			l.State, l.Deadline = Ending, a.now.Add(a.cfg.Grace)
			l.Warned = "its lease ran out and " + m.winner(l) + " needs the GPUs more"
			if wasted {
				i := a.idle(a.jobs[l.Job])
				l.Warned = fmt.Sprintf("its lease ran out with %s, and %s needs them", i.note(a.now), m.winner(l))
			}
			a.changed.Leases = append(a.changed.Leases, l)
		} else if wasted {
			a.renew(l, a.cfg.Lease)
		}
	}
	// Of the apps that took no part and won nothing only their number is kept.
	m.record.Bids = slices.DeleteFunc(m.record.Bids, func(b BidRecord) bool { return !b.In && b.Won == 0 })
	a.changed.Round = m.record
	a.last = m.record
	a.told = time.Time{}
}

func nodeList(on []cluster.Share) string {
	var s string
	for i, n := range on {
		if i > 0 {
			s += ","
		}
		s += n.Node
	}
	return s
}
