// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// probeAfter is how long an old word of the host's holds a job back.
const probeAfter = 5 * time.Minute

// observe takes in what the host sees: nodes, jobs that came, started, were
// requeued or ended, and what that means for their leases.
func (a *Arbiter) observe(snap *cluster.Snapshot) {
	a.silent = nil
	for _, host := range snap.Silent {
		if a.silent == nil {
			a.silent = map[string]bool{}
		}
		a.silent[host] = true
	}
	a.observeNodes(snap.Nodes)
	a.crowd()
	a.fluid.Advance(a.now, a.gpus()) // before who comes now is in it
	jobs := make([]*cluster.Job, len(snap.Jobs))
	for i := range jobs {
		jobs[i] = &snap.Jobs[i]
	}
	if !slices.IsSortedFunc(jobs, submitted) {
		slices.SortStableFunc(jobs, submitted)
	}
	for i := range jobs {
		a.observeJob(jobs[i])
	}
	var old []*Job
	for _, j := range a.list() {
		if j.seen == a.step {
			continue
		}
		if !j.done && a.silent[j.Host] {
			a.count(j)
			continue
		}
		if !j.done {
			a.end(j, cluster.Vanished)
		}
		if a.now.Sub(j.End) > time.Hour {
			old = append(old, j)
		}
	}
	for _, j := range old {
		a.forget(j)
	}
	a.reconcile()
	a.observeUse()
	for app := range a.moved {
		a.revise(app)
	}
	clear(a.moved)
	a.closeApps()
}

// submitted orders jobs as they came.
func submitted(x, y *cluster.Job) int {
	if c := x.Submit.Compare(y.Submit); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
}

// reconcile withdraws grants whose GPUs a job took that the host started without
// one: from an old table, or while it had forgotten us.
func (a *Arbiter) reconcile() {
	left := map[string]int{}
	for _, l := range a.live(notStarted) {
		if l.State != Granted || l.Anywhere {
			continue
		}
		for _, s := range l.On {
			if n := a.nodeOf(s.Node); n != nil {
				if _, ok := left[s.Node]; !ok {
					left[s.Node] = freeOf(n)
				}
				if n.Shared && n.Holder != "" && n.Holder != a.jobs[l.Job].Host {
					left[s.Node] = 0
				}
			}
			if left[s.Node] -= s.GPUs; left[s.Node] < 0 {
				left[s.Node] += s.GPUs
				a.over(l, "its GPUs on "+s.Node+" were taken")
				break
			}
		}
	}
}

func (a *Arbiter) observeNodes(nodes []cluster.Node) {
	for i := range nodes {
		n, old := &nodes[i], (*cluster.Node)(nil)
		if i < len(a.nodes) && a.nodes[i].Name == n.Name {
			old = &a.nodes[i]
		} else {
			old = a.nodeOf(n.Name)
		}
		if old == nil || old.State != n.State || freeOf(old) < freeOf(n) {
			a.stir()
		}
	}
	a.keepNodes(nodes)
	for _, l := range a.live(notStarted) {
		if l.State != Granted && l.State != Reserved {
			continue
		}
		for _, s := range l.On {
			if n := a.nodeOf(s.Node); n == nil || n.State != cluster.NodeUp {
				a.over(l, fmt.Sprintf("node %s is no longer available", s.Node))
				break
			}
		}
	}
}

// keepNodes copies the nodes, which are the caller's; of those with the same
// name the last counts.
func (a *Arbiter) keepNodes(nodes []cluster.Node) {
	same := len(nodes) == len(a.nodes)
	for i := 0; same && i < len(nodes); i++ {
		same = nodes[i].Name == a.nodes[i].Name
	}
	if !same {
		clear(a.node)
		a.nodes = make([]cluster.Node, 0, len(nodes))
		for i := range nodes {
			if _, ok := a.node[nodes[i].Name]; !ok {
				a.node[nodes[i].Name] = len(a.nodes)
				a.nodes = append(a.nodes, cluster.Node{})
			}
		}
	}
	a.total, a.biggest, a.slot = 0, 0, 0
	var part float64 // MIG instances, in whole GPUs
	changed := !same
	for i := range nodes {
		k := i
		if !same {
			k = a.node[nodes[i].Name]
		}
		changed = changed || !alike(&a.nodes[k], &nodes[i])
		gpus, slots := append(a.nodes[k].GPUs[:0], nodes[i].GPUs...), append(a.nodes[k].Slots[:0], nodes[i].Slots...)
		a.nodes[k] = nodes[i]
		a.nodes[k].GPUs, a.nodes[k].Slots = gpus, slots
		for _, s := range slots {
			a.slot = max(a.slot, s.Total)
		}
	}
	for i := range a.nodes {
		n, whole := &a.nodes[i], 0
		for _, g := range n.GPUs {
			offered := g.Total
			if n.State == cluster.NodeDown {
				offered = 0
			} else if n.State == cluster.NodeDrain && n.Why != "" {
				offered = g.Used // nobody can have the rest
			}
			if share := cluster.Part(g.Type); share == 1 {
				whole, a.total = whole+g.Total, a.total+offered
			} else {
				part += share * float64(offered)
			}
		}
		a.biggest = max(a.biggest, whole)
	}
	a.total += int(math.Round(part))
	if changed {
		a.facts++
		a.countTypes()
	}
}

// alike says whether a node has what it had, free or not.
func alike(n, was *cluster.Node) bool {
	return n.Rack == was.Rack &&
		slices.EqualFunc(n.GPUs, was.GPUs, func(x, y cluster.GPUs) bool { return x.Type == y.Type && x.Total == y.Total }) &&
		slices.EqualFunc(n.Slots, was.Slots, func(x, y cluster.GPUs) bool { return x.Total == y.Total })
}

func freeOf(n *cluster.Node) int {
	if n.State != cluster.NodeUp {
		return 0
	}
	total, used := n.TotalGPUs()
	return total - used
}

func (a *Arbiter) observeJob(in *cluster.Job) {
	j := a.jobs[in.ID]
	if j != nil {
		j.seen = a.step
	}
	if in.Submit.IsZero() {
		c := *in // the snapshot is the caller's
		if in, c.Submit = &c, a.now; j != nil {
			c.Submit = j.Submit
		}
	}
	if j == nil {
		if in.State == cluster.Ended {
			return // it came and went unseen
		}
		j = &Job{counted: a.now, since: a.now, seen: a.step}
		a.jobs[in.ID] = j
		j.take(a, in)
		a.enlist(j)
		a.changed.Jobs = append(a.changed.Jobs, j)
		a.stir()
	}
	if j.done && in.State == cluster.Ended {
		return
	}
	if a.steady(j, in) {
		a.count(j)
		a.judge(j)
		if j.App.partly {
			a.moved[j.App] = true
		}
		return
	}
	j.reset()
	j.as, j.facts = *in, a.facts
	defer j.reset()
	was := j.Job
	if j.since == a.now && j.App == nil { // its first report is news
		was.Hint.Progress, was.Hint.Remaining = 0, 0
	}
	a.count(j)
	j.take(a, in)
	if j.done { // requeued by its owner or an admin after it had ended
		j.done, j.report = false, nil
		if j.App != nil {
			j.App.Ended = time.Time{}
			a.dirty[j.App] = true
		}
		a.stir()
	}
	if in.Restarts > was.Restarts {
		a.restarted(j, &was)
	}
	if !was.Submit.IsZero() && was.Submit.Before(in.Submit) {
		j.Submit = was.Submit // Slurm sets it anew at a requeue
	}
	if !j.Submit.Equal(was.Submit) {
		a.queue = nil
	}
	if in.Blocked != was.Blocked || j.blocked.IsZero() {
		j.blocked = a.now
	}
	if in.Hint.Progress != was.Hint.Progress || in.Hint.Remaining != was.Hint.Remaining {
		j.report = &fairness.Report{Remaining: time.Duration(float64(in.Hint.Remaining) * a.times(j, in.On)), Progress: in.Hint.Progress, Attained: j.Attained}
		a.measure(j, in.Hint.Progress)
	}
	if j.App == nil && (!a.heldBack(j) || in.State != cluster.Pending) {
		a.join(j)
	}
	if in.Blocked != was.Blocked || in.State != was.State {
		a.changed.Jobs = append(a.changed.Jobs, j)
		a.stir()
	}
	a.estimate(j)
	switch in.State {
	case cluster.Pending:
		a.pending(j)
	case cluster.Running, cluster.Suspended, cluster.Completing:
		a.running(j)
	case cluster.Ended:
		a.end(j, in.Outcome)
	}
}

// reset drops what was reckoned from how the job and its lease are.
func (j *Job) reset() {
	j.wide, j.gain = 0, 0
	if j.Lease != nil {
		j.Lease.rate = 0
	}
}

// steady says whether nothing is new of a job: it goes on running, or waiting.
func (a *Arbiter) steady(j *Job, in *cluster.Job) bool {
	if j.App == nil || j.done || j.facts != a.facts || a.silent != nil || !j.as.Same(in) {
		return false
	}
	switch l := j.Lease; in.State {
	case cluster.Running:
		return l != nil && holds(l)
	case cluster.Pending:
		return in.Blocked == "" && (l == nil || notStarted(l))
	}
	return false
}

// take makes what the host sees the job's.
func (j *Job) take(a *Arbiter, in *cluster.Job) {
	j.Job = *in
	j.Hint = a.corrected(in)
}

// count adds the time since the last snapshot to what the job has attained.
func (a *Arbiter) count(j *Job) {
	if j.State == cluster.Running && j.Lease != nil {
		from := j.counted
		if j.Start.After(from) {
			from = j.Start
		}
		until := a.now
		if !j.End.IsZero() && j.End.Before(until) {
			until = j.End
		}
		if d := until.Sub(from); d > 0 {
			if j.gain == 0 {
				least := j.Shape.Count()
				j.gain = j.pace(max(j.Lease.gpus(), least), cluster.SpanOf(j.On, a.rack)) * a.times(j, j.On) / float64(max(least, 1))
			}
			j.Attained += time.Duration(float64(d) * j.gain)
		}
	}
	if cause := a.waitsFor(j); cause != nil {
		*cause += a.now.Sub(j.counted)
	}
	j.counted = a.now
}

// Waited is how long a job has waited, by cause.
type Waited struct {
	Host    time.Duration // the host held it back, or was silent
	Auction time.Duration // it had won no GPUs
	Gather  time.Duration // it had won, and they were not free yet
	Start   time.Duration // its grant was not taken up yet
}

// waitsFor is what the job waits for, nil if it runs.
func (a *Arbiter) waitsFor(j *Job) *time.Duration {
	switch w := &j.Waited; {
	case j.done || j.State != cluster.Pending:
		return nil
	case a.heldBack(j):
		return &w.Host
	case j.Lease == nil:
		return &w.Auction
	case j.Lease.State == Reserved:
		return &w.Gather
	default:
		return &w.Start
	}
}

func (a *Arbiter) rack(node string) string {
	if n := a.nodeOf(node); n != nil {
		return n.Rack
	}
	return ""
}

// heldBack says whether the host itself keeps the job from starting, or is silent. What the
// host said long ago may no longer hold, and only a grant gets it to look again.
func (a *Arbiter) heldBack(j *Job) bool {
	return a.silent[j.Host] || j.Blocked != "" && !(j.BlockedOld && a.now.Sub(j.blocked) >= probeAfter)
}

// restarted takes off what a requeue lost: all of it without checkpoints, none
// if the job was warned in time, else half an interval. If a node of its failed,
// that and the restart are work in the virtual schedule as well: with the same nodes
// its fair share would have lost them, too.
func (a *Arbiter) restarted(j *Job, was *cluster.Job) {
	had := j.Attained
	switch {
	case j.Hint.Checkpoint == 0:
		j.Attained = 0
	case j.Lease == nil || j.Lease.State != Ending:
		j.Attained = max(j.Attained-j.Hint.Checkpoint/2, 0)
	}
	if l := j.Lease; l != nil && l.State == Held {
		if l.Warned = a.failure(l.On); l.Warned != "" {
			j.Lost += had - j.Attained + a.cfg.Restart
		}
	}
	j.since = a.now
	j.fails, j.backoff, j.Note = 0, time.Time{}, ""
}

// failure says which of the nodes the host has taken out of service, and why; "" if none.
func (a *Arbiter) failure(on []cluster.Share) string {
	for _, s := range on {
		switch n := a.nodeOf(s.Node); {
		case n != nil && n.State != cluster.NodeUp && n.Why != "":
			return "failed: " + n.Name + ": " + n.Why
		case n == nil || n.State == cluster.NodeDown:
			return "failed: " + s.Node + " is down"
		}
	}
	return ""
}

// join puts a job into its app, which starts now if it is the first.
func (a *Arbiter) join(j *Job) {
	name, owner := j.ID, j.User
	if owner == "" {
		owner = fmt.Sprintf("uid%d", j.UID)
	}
	switch {
	case j.Hint.App != "":
		name = j.Hint.App
	case j.Array != "":
		name = j.Array
	case j.Gang != "":
		name = j.Gang
	}
	id := owner + "/" + name
	for n := 2; a.apps[id] != nil && !a.apps[id].Ended.IsZero(); n++ {
		id = fmt.Sprintf("%s/%s#%d", owner, name, n)
	}
	app := a.apps[id]
	if app == nil {
		a.ids.Order++
		app = &App{ID: id, User: owner, Weight: cmp.Or(j.Weight, 1), Order: a.ids.Order, Submit: a.now}
		if j.Eligible.After(j.Submit) && j.Eligible.Before(a.now) {
			app.Submit = j.Eligible
		} else if !j.Submit.IsZero() && j.Submit.Before(a.now) && !j.Eligible.After(a.now) {
			app.Submit = j.Submit
		}
		// Before we saw it, it was as crowded as at the last step.
		app.Crowd = a.ids.Crowd - float64(a.going+1)*a.now.Sub(app.Submit).Seconds()
		switch a.cfg.Entity {
		case ByApp:
			app.Entity = id
		case ByAccount:
			app.Entity = j.Account
		default:
			app.Entity = owner
		}
		a.apps[id], a.all = app, append(a.all, app)
	}
	j.App = app
	app.jobs = append(app.jobs, j)
	a.dirty[app] = true
	a.changed.Jobs = append(a.changed.Jobs, j)
}

func (a *Arbiter) pending(j *Job) {
	l := j.Lease
	if l == nil {
		return
	}
	switch l.State {
	case Held:
		a.over(l, cmp.Or(l.Warned, "requeued"))
	case Ending:
		a.over(l, "reclaimed: "+l.Warned)
	default:
		if a.heldBack(j) {
			a.over(l, "the host holds it back: "+j.Blocked)
		}
	}
}

func (a *Arbiter) running(j *Job) {
	l := j.Lease
	if l == nil {
		l = a.newLease(j, 0, j.On, a.cfg.Lease)
		l.State, l.Started, l.Expires = Held, a.now, a.ends(l.Length)
		return
	}
	if l.State == Granted || l.State == Reserved {
		l.State, l.Started, l.Expires = Held, a.now, a.ends(l.Length)
		j.fails, j.Note = 0, ""
		a.changed.Leases = append(a.changed.Leases, l)
		a.changed.Jobs = append(a.changed.Jobs, j)
	}
	if len(j.On) > 0 && !slices.Equal(l.On, j.On) {
		l.On = slices.Clone(j.On)
		a.changed.Leases = append(a.changed.Leases, l)
	}
}

// end closes a job and its lease.
func (a *Arbiter) end(j *Job, how cluster.Outcome) {
	a.count(j)
	if j.End.IsZero() || j.End.After(a.now) {
		j.End = a.now
	}
	if ran := time.Duration(float64(j.End.Sub(j.Start)) * a.times(j, j.On)); j.Restarts == 0 && !j.Start.IsZero() && ran > j.Attained {
		j.Attained = ran // it ran while nobody looked
	}
	j.done, j.State, j.Outcome = true, cluster.Ended, how
	a.changed.Jobs = append(a.changed.Jobs, j)
	if j.Lease != nil {
		if l := j.Lease; l.Started.IsZero() && !j.Start.IsZero() { // it ran while nobody looked
			l.Started = later(j.Start, l.Granted)
		}
		why := ""
		if how == cluster.Failed || how == cluster.NodeFail {
			why = a.failure(j.Lease.On)
		}
		a.over(j.Lease, cmp.Or(why, string(how)))
	}
	if how == cluster.Completed {
		a.Remember(j.SaveJob())
	}
	a.compare(j)
	a.stir()
	app := j.App
	if app == nil {
		return
	}
	j.MoreTasks = 0
	a.moved[app], a.dirty[app] = true, true
}

// closeApps ends the apps whose last job has ended.
func (a *Arbiter) closeApps() {
	for app := range a.dirty {
		if !app.Ended.IsZero() || slices.ContainsFunc(app.jobs, func(j *Job) bool { return !j.done }) {
			continue
		}
		for _, j := range app.jobs {
			if j.End.After(app.Ended) {
				app.Ended = j.End
			}
		}
		if a.cfg.Reference == ReferencePaper {
			app.Reference = a.paper(app)
		}
	}
}

// forget drops a job that the host no longer lists and, with its last, the app,
// unless the app's virtual run goes on.
func (a *Arbiter) forget(j *Job) {
	app := j.App
	if app == nil {
		a.drop(j)
		return
	}
	state, _ := a.fluid.State(app.ID)
	if len(app.jobs) == 1 && state.Left > 0 {
		return
	}
	a.drop(j)
	app.jobs = slices.DeleteFunc(app.jobs, func(o *Job) bool { return o == j })
	app.work -= j.size() * j.took().Seconds() // done, and told
	app.Gone.Add(j.size(), j.took())
	if len(app.jobs) == 0 {
		a.fluid.Remove(app.ID)
		delete(a.apps, app.ID)
		a.all = slices.DeleteFunc(a.all, func(o *App) bool { return o == app })
	} else {
		a.dirty[app] = true
		app.earliest = app.endsEarliest()
	}
}

func (a *Arbiter) drop(j *Job) {
	delete(a.jobs, j.ID)
	if at, ok := slices.BinarySearchFunc(a.queue, j, before); ok {
		a.queue = slices.Delete(a.queue, at, at+1)
	}
}

func (a *Arbiter) newLease(j *Job, round uint64, on []cluster.Share, length time.Duration) *Lease {
	a.ids.Lease++
	l := &Lease{ID: a.ids.Lease, Job: j.ID, App: j.App.ID, Round: round, State: Granted,
		On: slices.Clone(on), Length: length, Granted: a.now, Deadline: a.now.Add(a.cfg.TakeUp)}
	a.leases = append(a.leases, l)
	j.Lease = l
	a.changed.Leases = append(a.changed.Leases, l)
	return l
}

func (a *Arbiter) over(l *Lease, why string) {
	l.State, l.Ended, l.Reason = Over, a.now, why
	if at, ok := slices.BinarySearchFunc(a.leases, l, func(x, y *Lease) int { return cmp.Compare(x.ID, y.ID) }); ok {
		a.leases = slices.Delete(a.leases, at, at+1)
	}
	if j := a.jobs[l.Job]; j != nil && j.Lease == l {
		j.Lease = nil
		j.since = a.now
	}
	a.changed.Leases = append(a.changed.Leases, l)
	a.stir()
}
