// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math"
	"slices"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// Reference says which T_id rho is measured against.
type Reference string

// References.
const (
	ReferenceFluid Reference = "fluid" // finish in the virtual fair schedule
	ReferencePaper Reference = "paper" // T_cluster * N_avg (paper section 3)
)

// runsKept is how many runs are remembered of like jobs, and of a user.
const runsKept = 20

// Remember adds a completed run to what estimates use; the oldest first.
func (a *Arbiter) Remember(s SavedJob) {
	run := fairness.Run{Took: s.Attained, Limit: s.Job.Limit, Declared: s.Declared}
	if run.Took <= 0 {
		return
	}
	recordOf(a.history, like(&s.Job)).add(run)
	if run.Declared > 0 {
		said := recordOf(a.said, s.Job.UID)
		said.add(run)
		said.honesty = fairness.HonestyOf(said.runs)
	}
}

// record is the latest runs that estimates are made of.
type record struct {
	runs    []fairness.Run
	honesty fairness.Honesty // of a user's
	added   int              // ever
}

func (r *record) add(run fairness.Run) {
	r.runs = append(r.runs, run)
	r.runs = r.runs[max(0, len(r.runs)-runsKept):]
	r.added++
}

func recordOf[K comparable](records map[K]*record, key K) *record {
	r := records[key]
	if r == nil {
		r = &record{}
		records[key] = r
	}
	return r
}

// like names the jobs whose run times tell of this one's.
func like(j *cluster.Job) string {
	return fmt.Sprintf("%d/%s/%d", j.UID, j.Name, j.Shape.Count())
}

// estimate judges the run time of a job of which something is new.
func (a *Arbiter) estimate(j *Job) {
	a.gauge(j)
	if d := time.Duration(float64(j.Hint.Runtime) / j.mean); d > 0 && (j.declared == 0 || d < j.declared) {
		j.declared = d
	}
	j.past, j.said = recordOf(a.history, like(&j.Job)), recordOf(a.said, j.UID)
	a.judge(j)
	if j.App != nil {
		a.moved[j.App] = true
	}
}

// judge judges the job's run time anew if there is cause to, and has the virtual
// schedule told of what changes its app's work.
func (a *Arbiter) judge(j *Job) {
	made := judged{j.past.added, j.said.added, j.report, j.Hint.Runtime, j.Limit, j.mean, j.Restarts, j.State}
	if made == j.judged && float64(j.Attained)*fairness.Overrun < float64(j.Estimate.Total) {
		return // it would come out the same
	}
	j.judged = made
	e := fairness.Judge(&j.Job, fairness.Evidence{Report: j.report, Attained: j.Attained,
		Past: j.past.runs, Said: j.said.honesty, Mean: j.mean, Fastest: j.fastest})
	moved := (e.Total - j.Estimate.Total).Abs()
	if e.Source != j.Estimate.Source || moved > j.Estimate.Total/20 {
		j.Estimate = e
		if j.First.Source == "" {
			j.First = e
		}
		a.changed.Jobs = append(a.changed.Jobs, j)
	} else if j.Attained <= j.Estimate.Total {
		return
	}
	if j.App != nil {
		a.moved[j.App] = true
	}
}

// took is the run time that the job took, or will have taken, what failures cost it included.
func (j *Job) took() time.Duration {
	if j.done {
		return j.Attained + j.Lost
	}
	return max(j.Estimate.Total, j.Attained) + j.Lost
}

// workOf is the app's work in GPU-seconds, done and to come, as estimated, and
// the most GPUs that it could keep busy to its end: no more than its jobs have
// together, and no more than would end it before its longest job. Jobs that have
// ended count while the virtual run, with virtual GPU-seconds left, is behind: what
// an app did early must not make its reference later.
func workOf(app *App, virtual float64) (work, par float64) {
	longest, left, ended := app.Gone.Longest, 0.0, app.Gone.Par
	for _, j := range app.jobs {
		took, n := j.took(), j.size()
		work += n * took.Seconds()
		if j.done {
			ended += j.widest()
		} else {
			more := n * float64(j.MoreTasks) * (took - j.Lost).Seconds()
			work += more
			left += n*(took-j.Lost-j.Attained).Seconds() + more
			par += j.widest() * float64(1+j.MoreTasks)
			took = time.Duration(float64(took) * j.size() / max(j.widest(), minWidth))
		}
		longest = max(longest, took)
	}
	if longest > 0 {
		if virtual > left {
			par += ended
		}
		par = min(par, (app.Gone.Work+work)/longest.Seconds())
	}
	return work, par
}

// minWidth is the least width of a job, in GPUs: a MIG instance is a part of one.
const minWidth = 1.0 / 64

// revise tells the virtual schedule of what changed in the app's work. Its width
// may be off by parMost, as each change has every reference projected anew.
func (a *Arbiter) revise(app *App) {
	was, ok := a.fluid.State(app.ID)
	work, par := workOf(app, was.Left)
	app.earliest = app.endsEarliest()
	app.partly = app.Gone.Par > 0 || slices.ContainsFunc(app.jobs, func(j *Job) bool { return j.done })
	if !ok {
		a.fluid.Add(app.ID, app.Entity, app.Weight, work, par)
	} else {
		if math.Abs(par-was.Par) < parMost*was.Par {
			par = was.Par
		}
		a.fluid.Revise(app.ID, work-app.work, par)
	}
	app.work = work
}

const parMost = 0.02

// crowd counts the app-seconds since the virtual schedule was last played.
func (a *Arbiter) crowd() {
	var n int
	for _, app := range a.all {
		if app.Ended.IsZero() {
			n++
		}
	}
	a.ids.Crowd += float64(n) * max(a.now.Sub(a.fluid.Now()), 0).Seconds()
}

// paper is the app's reference by the paper's definition, as of now.
func (a *Arbiter) paper(app *App) time.Time {
	size := app.Gone
	for _, j := range app.jobs {
		if j.done {
			size.Add(j.size(), j.took())
		} else {
			size.Add(j.size()*float64(1+j.MoreTasks), j.took())
		}
	}
	contention := float64(a.going)
	if life := a.now.Sub(app.Submit).Seconds(); life > 0 {
		contention = (a.ids.Crowd - app.Crowd) / life
	}
	return app.Submit.Add(size.Ideal(a.gpus(), contention))
}

// papers returns the references of the apps that go on. They move all the time:
// changes of under 1% wait, as each is a row in the ledger.
func (a *Arbiter) papers() map[string]time.Time {
	refs := map[string]time.Time{}
	for _, app := range a.all {
		id := app.ID
		if ref := a.paper(app); app.Ended.IsZero() && ref.Sub(app.Reference).Abs() > ref.Sub(app.Submit)/100 {
			refs[id] = ref
		}
	}
	return refs
}
