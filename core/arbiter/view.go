// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// sentencesEvery bounds how often the reasons of waiting jobs are rewritten
// between rounds; sentencesMost how many get one of their own.
const (
	sentencesEvery = 15 * time.Second
	sentencesMost  = 2000
)

// waiting returns the jobs that wait for GPUs, in the order they are ranked: by
// whose turn it is, inside an app in its own order.
func (a *Arbiter) waiting() []*Job {
	var out []*Job
	for _, j := range a.list() {
		if !j.done && j.App != nil && j.State == cluster.Pending && !a.heldBack(j) &&
			(j.Lease == nil || j.Lease.State == Reserved) {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, func(x, y *Job) int { return a.turn(x.App, y.App) })
	return out
}

// sentences makes the waiting jobs' reasons, at most every sentencesEvery.
func (a *Arbiter) sentences() []Wait {
	queue := a.waiting()
	if !a.told.IsZero() && a.now.Sub(a.told) < sentencesEvery && min(len(queue), sentencesMost) == len(a.waits) {
		return a.waits
	}
	a.told, a.held = a.now, a.holders()
	a.waits = make([]Wait, 0, min(len(queue), sentencesMost))
	ranks, next := ranksOf(queue), a.next()
	for _, j := range queue[:min(len(queue), sentencesMost)] {
		a.waits = append(a.waits, Wait{Job: j.ID, Why: a.sentence(j, ranks[j.App], len(ranks), next)})
	}
	return a.waits
}

func ranksOf(queue []*Job) map[*App]int {
	ranks := map[*App]int{}
	for _, j := range queue {
		if _, ok := ranks[j.App]; !ok {
			ranks[j.App] = len(ranks) + 1
		}
	}
	return ranks
}

// sentence says in one line why a job waits. Its times are absolute, so that it
// need not be rewritten every second.
func (a *Arbiter) sentence(j *Job, rank, of int, next time.Time) string {
	s := fmt.Sprintf("rho %.2f, rank %d of %d", j.App.Rho, rank, of)
	switch l := j.Lease; {
	case l != nil:
		s += fmt.Sprintf("; won %d GPUs on %s, waiting for them to become free", l.gpus(), nodeList(l.On))
		return s
	case a.now.Before(j.backoff):
		return s + fmt.Sprintf("; stepped back until %s: %s", j.backoff.Format("15:04:05"), j.Note)
	}
	if w := a.outbid(j, 1); len(w) > 0 {
		s += fmt.Sprintf("; outbid by %s (rho %.2f)", w[0].App, w[0].Rho)
	} else if h := a.holder(j.App); h != nil {
		s += fmt.Sprintf("; %s (rho %.2f) holds %d of %d GPUs", h.ID, h.Rho, a.held[h], a.gpus())
	}
	if !next.IsZero() {
		s += "; next auction by " + next.Format("15:04:05")
	} else {
		s += "; next auction when GPUs become free"
	}
	return s
}

// outbid returns at most so many of the others that won in the last round, the
// best-off first, if the job already waited then.
func (a *Arbiter) outbid(j *Job, most int) []BidRecord {
	if a.last == nil || a.last.At.Before(j.since) {
		return nil
	}
	if a.winnersOf != a.last {
		a.winnersOf, a.winners = a.last, nil
		for i := range a.last.Bids {
			if r := &a.last.Bids[i]; r.Won > 0 {
				a.winners = append(a.winners, r)
			}
		}
		slices.SortStableFunc(a.winners, func(x, y *BidRecord) int { return cmp.Compare(x.Rho, y.Rho) })
	}
	var out []BidRecord
	for _, r := range a.winners {
		if len(out) == most {
			break
		}
		if r.App != j.App.ID {
			out = append(out, *r)
		}
	}
	return out
}

// holders counts each app's GPUs under leases.
func (a *Arbiter) holders() map[*App]int {
	held := map[*App]int{}
	for _, l := range a.leases {
		if app := a.apps[l.App]; app != nil && l.State != Reserved {
			held[app] += l.gpus()
		}
	}
	return held
}

// holder is the other app that holds most GPUs, nil if none does.
func (a *Arbiter) holder(app *App) *App {
	var most *App
	for h, n := range a.held {
		if h != app && (most == nil || n > a.held[most] || n == a.held[most] && h.Order < most.Order) {
			most = h
		}
	}
	return most
}

// next is when the next round is expected at the latest: an event settles, a
// lease that can end runs out, or a running job ends. Zero if nothing is known.
func (a *Arbiter) next() time.Time {
	if !a.event.IsZero() {
		return a.event.Add(a.cfg.Settle)
	}
	var next time.Time
	for _, l := range a.leases {
		if l.State != Held && l.State != Ending {
			continue
		}
		at := a.endOf(l, true)
		if l.State == Held && a.reclaimable(a.jobs[l.Job]) {
			at = l.Expires
		}
		if at.After(a.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Explanation is all that is known of why a job waits, runs or ended.
type Explanation struct {
	Job    *Job
	Rank   int // of its app among the waiting apps, from 1; 0 if it does not wait
	Of     int
	Why    string
	Outbid []BidRecord // who won in the last round, the best-off first
	Held   []BidRecord // who holds GPUs, most first: App, Rho, Won
	Last   *Round
	Bid    *BidRecord   // of its app in Last, nil if it made none or nothing is known of it
	Debt   float64      // GPU-seconds that its entity owes
	Next   time.Time    // of the next round, or zero
	Starts [2]time.Time // range of the expected start, or zeros
	Advice []string     // what would help
	Free   int          // GPUs free now
	Types  string       // of the GPUs under its lease
	Speed  float64      // of the job on them, 1 being what its run time is stated for; 0: it says nothing
	Idle   Idle         // of the job's GPUs
}

// Explain answers for one job; false if it is not known. A bare array id stands
// for its first task that is not over.
func (a *Arbiter) Explain(id string) (Explanation, bool) {
	j := a.jobs[id]
	if j == nil {
		for _, o := range a.list() {
			if o.Array == id && (j == nil || j.done && !o.done) {
				j = o
			}
		}
	}
	if j == nil {
		return Explanation{}, false
	}
	e := Explanation{Job: j, Last: a.last, Next: a.next()}
	for i := range a.nodes {
		e.Free += freeOf(&a.nodes[i])
	}
	e.Free -= a.claimedAll()
	if l := j.Lease; l != nil {
		if e.Types = cmp.Or(j.Shape.Type, a.typesOn(l.On)); j.hinted() {
			e.Speed = a.times(j, l.On) * j.mean
		}
		e.Idle = a.idle(j)
	}
	if j.App != nil {
		e.Debt = a.Owes(j.App.Entity)
		if a.last != nil {
			if i := slices.IndexFunc(a.last.Bids, func(b BidRecord) bool { return b.App == j.App.ID }); i >= 0 {
				e.Bid = &a.last.Bids[i]
			}
		}
	}
	switch {
	case j.done:
		e.Why = "ended: " + string(j.Outcome)
	case j.State != cluster.Pending:
		e.Why = "runs"
		if j.Lease != nil && j.Lease.State == Ending {
			e.Why = "must leave: " + j.Lease.Warned
		}
	case a.silent[j.Host]:
		e.Why = "its host is silent"
	case a.heldBack(j):
		e.Why = "not ours to start yet: " + j.Blocked
	case j.App == nil:
		e.Why = "just arrived"
	case j.Lease != nil && j.Lease.State == Granted:
		e.Why = "holds a lease on " + nodeList(j.Lease.On) + " and is about to start"
	default:
		queue := a.waiting()
		ranks := ranksOf(queue)
		e.Rank, e.Of = ranks[j.App], len(ranks)
		a.held = a.holders()
		e.Why = a.sentence(j, e.Rank, e.Of, e.Next)
		e.Outbid = a.outbid(j, math.MaxInt)
		for app, n := range a.held {
			e.Held = append(e.Held, BidRecord{App: app.ID, Rho: app.Rho, Won: n})
		}
		slices.SortFunc(e.Held, func(x, y BidRecord) int {
			return cmp.Or(cmp.Compare(y.Won, x.Won), cmp.Compare(x.App, y.App))
		})
		e.Starts = a.startRange(j, queue)
		e.Advice = a.advice(j, e.Free)
	}
	return e, true
}

func (a *Arbiter) claimedAll() int {
	var n int
	for _, l := range a.leases {
		if l.State == Granted || l.State == Reserved {
			n += l.gpus()
		}
	}
	return n
}

// startRange brackets the start of a waiting job: the earliest is when its GPUs
// come free if it is first in line, the latest when all ranked before it have
// been served at the cluster's full rate.
func (a *Arbiter) startRange(j *Job, queue []*Job) [2]time.Time {
	on, ready := a.soonest(j, a.endings(true))
	if on == nil {
		return [2]time.Time{}
	}
	early := ready
	if next := a.next(); next.After(early) && !a.event.IsZero() {
		early = next
	}
	var ahead float64
	for _, o := range queue {
		if o == j {
			break
		}
		ahead += float64(o.Shape.Count()) * max(o.Estimate.Total-o.Attained, 0).Seconds()
	}
	late := early.Add(time.Duration(ahead / max(float64(a.gpus()), 1) * float64(time.Second)))
	return [2]time.Time{early, late}
}

// advice lists what the user could do.
func (a *Arbiter) advice(j *Job, free int) []string {
	var out []string
	if n := j.Shape.Count(); free > 0 && free < n {
		out = append(out, fmt.Sprintf("a job of at most %d GPUs could start now; this one asks for %d", free, n))
	}
	if !j.AnyNode && len(j.Nodes) < len(a.nodes) {
		out = append(out, fmt.Sprintf("it may run on %d of %d nodes; fewer constraints would widen the choice", len(j.Nodes), len(a.nodes)))
	}
	if j.whole {
		out = append(out, "nodes with MIG slices are given to jobs that ask for a type only: a slice is not a whole GPU")
	}
	switch j.Estimate.Source {
	case fairness.Limit:
		out = append(out, "its run time is taken from its time limit; declare it: "+j.saying("runtime=2h"))
	case fairness.Guess:
		out = append(out, "its run time is a guess, as it has no time limit; declare it: "+j.saying("runtime=2h"))
	}
	if m := j.Hint.Model; m != "" && len(j.Hint.Place) == 0 && !slices.Contains(fairness.Models(), m) {
		out = append(out, fmt.Sprintf("model=%s is not known, so its placement is valued as usual; known are %s, or say place=1,.9,.7,.5", m, strings.Join(fairness.Models(), ", ")))
	}
	if !a.reclaimable(j) && a.cfg.Reclaim == ReclaimDeclared {
		out = append(out, "no lease can end under it; if it checkpoints, say so: "+j.saying("checkpoint=10m"))
	}
	return out
}

// saying shows how users of the job's host say a word of a hint.
func (j *Job) saying(word string) string {
	if j.Host == "yarn" {
		return "application tag themis:" + word
	}
	return `--comment="themis: ` + word + `"`
}

// State is the whole picture for the status, apps and leases views.
type State struct {
	Now     time.Time
	GPUs    int
	Types   []cluster.GPUs // of nodes that are not down, by type; none if no node names one
	Used    int
	Claimed int
	Nodes   int
	Waiting int
	Running int
	Next    time.Time
	Last    *Round
	Apps    []*App
	Leases  []*Lease
	Idle    []Idle // the longest idle first
	Config  Config
}

// State returns the picture now. Apps are sorted by rho, the worst first, ended
// ones last; leases by id. The pointers are the arbiter's own: read them before
// the next Step.
func (a *Arbiter) State() State {
	s := State{Now: a.now, GPUs: a.gpus(), Claimed: a.claimedAll(), Nodes: len(a.nodes), Next: a.next(), Last: a.last, Config: a.cfg}
	for i := range a.nodes {
		n := &a.nodes[i]
		_, used := n.TotalGPUs()
		s.Used += used
		for _, g := range n.GPUs {
			at := slices.IndexFunc(s.Types, func(t cluster.GPUs) bool { return t.Type == g.Type })
			if n.State == cluster.NodeDown || g.Total == 0 {
				continue
			} else if at < 0 {
				at, s.Types = len(s.Types), append(s.Types, cluster.GPUs{Type: g.Type})
			}
			s.Types[at].Total += g.Total
			s.Types[at].Used += g.Used
		}
	}
	slices.SortFunc(s.Types, func(x, y cluster.GPUs) int { return cmp.Compare(x.Type, y.Type) })
	if len(s.Types) == 1 && s.Types[0].Type == "" {
		s.Types = nil
	}
	for _, j := range a.jobs {
		switch {
		case j.done:
		case j.State == cluster.Pending:
			s.Waiting++
		default:
			s.Running++
		}
	}
	s.Apps = slices.Clone(a.all)
	slices.SortFunc(s.Apps, func(x, y *App) int {
		return cmp.Or(x.Ended.Compare(y.Ended), cmp.Compare(y.Rho, x.Rho), cmp.Compare(x.Order, y.Order))
	})
	s.Leases, s.Idle = slices.Clone(a.leases), a.idlers()
	return s
}

// Jobs returns the app's jobs in its own order.
func (app *App) Jobs() []*Job { return slices.Clone(app.jobs) }

// Done says whether the job is over.
func (j *Job) Done() bool { return j.done }

// GPUs is the number of GPUs under the lease.
func (l *Lease) GPUs() int { return l.gpus() }

// Nodes names the lease's nodes, joined by commas.
func (l *Lease) Nodes() string { return nodeList(l.On) }
