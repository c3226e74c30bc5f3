// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"slices"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// Saved is what an arbiter needs to go on after a restart: the ledger keeps it.
type Saved struct {
	IDs    IDs
	Fluid  time.Time // up to when the virtual schedule was played
	Apps   []SavedApp
	Jobs   []SavedJob
	Leases []Lease // live ones
	Debts  map[string]Debt
	Places map[Place]Measured
	Last   *Round
}

// SavedApp is an app as the ledger keeps it.
type SavedApp struct {
	App   App
	Work  float64 // GPU-seconds
	Fluid fairness.FluidApp
}

// SavedJob is a job as the ledger keeps it.
type SavedJob struct {
	Job      cluster.Job
	App      string // "" if it has not joined one yet
	Estimate fairness.Estimate
	First    fairness.Estimate
	Declared time.Duration // the least its user ever declared
	Attained time.Duration
	Lost     time.Duration
	Mean     float64 // the job's speed on the mean GPU, of which the times are; 0 reads as 1
	Report   *fairness.Report
	Since    time.Time
	Counted  time.Time
	Use      Use
	Waited   Waited
	Fails    int
	Note     string
	Done     bool
}

// Stated is a run time of the job as its user would state it.
func (s *SavedJob) Stated(d time.Duration) time.Duration {
	return time.Duration(float64(d) * cmp.Or(s.Mean, 1))
}

// SaveApp returns the app as the ledger keeps it.
func (a *Arbiter) SaveApp(app *App) SavedApp {
	fluid, _ := a.fluid.State(app.ID)
	s := SavedApp{App: *app, Work: app.work, Fluid: fluid}
	s.App.jobs = nil
	return s
}

// SaveJob returns the job as the ledger keeps it.
func (j *Job) SaveJob() SavedJob {
	s := SavedJob{Job: j.Job, Estimate: j.Estimate, First: j.First, Declared: j.declared, Attained: j.Attained, Lost: j.Lost, Mean: j.mean, Report: j.report,
		Since: j.since, Counted: j.counted, Use: j.Use, Waited: j.Waited, Fails: j.fails, Note: j.Note, Done: j.done}
	if j.App != nil {
		s.App = j.App.ID
	}
	return s
}

// IDs returns the numbers last used.
func (a *Arbiter) IDs() IDs { return a.ids }

// FluidNow is the time of the virtual schedule.
func (a *Arbiter) FluidNow() time.Time { return a.fluid.Now() }

// Restore makes an arbiter that goes on where another stopped at or before now.
// Leases whose jobs turn out to be gone end with the first snapshot.
func Restore(cfg Config, now time.Time, s Saved) *Arbiter {
	a := New(cfg, now)
	if !s.Fluid.IsZero() && s.Fluid.Before(now) {
		a.fluid = fairness.NewFluid(s.Fluid)
	}
	a.ids, a.last = s.IDs, s.Last
	for entity, d := range s.Debts {
		a.debts[entity] = d
	}
	for at, f := range s.Places {
		a.places[at] = f
	}
	for _, sa := range s.Apps {
		app := sa.App
		app.work = 0 // told so far, of the jobs that are still known
		a.apps[app.ID], a.all = &app, append(a.all, &app)
		if sa.Fluid.Entity != "" {
			a.fluid.Restore(app.ID, sa.Fluid)
		}
	}
	slices.SortFunc(a.all, func(x, y *App) int { return cmp.Compare(x.Order, y.Order) })
	for _, sj := range s.Jobs {
		j := &Job{Job: sj.Job, App: a.apps[sj.App], Estimate: sj.Estimate, First: sj.First, declared: sj.Declared, Attained: sj.Attained, Lost: sj.Lost, mean: sj.Mean,
			report: sj.Report, since: sj.Since, counted: sj.Counted, Use: sj.Use, Waited: sj.Waited, fails: sj.Fails, Note: sj.Note, done: sj.Done}
		a.jobs[j.ID] = j
		if j.App != nil {
			j.App.jobs = append(j.App.jobs, j)
		}
	}
	for _, app := range a.all {
		app.work, _ = workOf(app, 0)
		app.earliest = app.endsEarliest()
	}
	for i := range s.Leases {
		l := s.Leases[i]
		if j := a.jobs[l.Job]; j != nil {
			a.leases = append(a.leases, &l)
			j.Lease = &l
			if l.State == Granted { // the host may not have heard of it yet
				l.Deadline = now.Add(cfg.TakeUp)
			}
		}
	}
	slices.SortFunc(a.leases, func(x, y *Lease) int { return cmp.Compare(x.ID, y.ID) })
	a.stir()
	return a
}
