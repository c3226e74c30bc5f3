// SPDX-License-Identifier: Apache-2.0

// Package sim plays a trace on a simulated cluster under a policy. Only time is
// simulated: the policy "themis" is the arbiter that schedules live, fed with
// the snapshots that a host would send. A run is a function of trace, cluster
// and options: the same input gives the same bytes.
package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
	"themis/core/trace"
)

// Options shape a run. The zero value of a field is its default, if it says one.
type Options struct {
	Lease      time.Duration // 0: 10 minutes
	F          float64       // share of the apps that stay out of an auction
	Target     float64       // the worst rho that Themis aims at; 0: 1
	Aim        string        // of Themis: "turnaround" (0) or "makespan"
	Restart    time.Duration // without progress whenever a job starts that has run before
	Checkpoint time.Duration // between two of them; all that a failing node loses. 0: 10 minutes
	Seed       uint64
	Estimate   string                                        // what is known of run times: "declared" (0), "history", "limit"
	Error      float64                                       // declared times are off by up to this share, [0,1)
	Entity     string                                        // "app" (0), "user", "account"
	MTBF       time.Duration                                 // of a node; 0: none fails
	Repair     time.Duration                                 // 0: 1 hour
	Lies       map[string]float64                            // by app: declared run times are so many times the truth
	Lanes      bool                                          // keep who had which node
	Progress   func(now time.Duration, ended, jobs int) bool // now and then; false stops the run
}

func (o Options) withDefaults() Options {
	o.Lease, o.Checkpoint, o.Repair = cmp.Or(o.Lease, 10*time.Minute), cmp.Or(o.Checkpoint, 10*time.Minute), cmp.Or(o.Repair, time.Hour)
	o.Estimate, o.Entity = cmp.Or(o.Estimate, "declared"), cmp.Or(o.Entity, "app")
	o.Target, o.Aim = cmp.Or(o.Target, 1), cmp.Or(o.Aim, "turnaround")
	return o
}

// Policy decides who runs where. It sees the World through exported fields and
// methods only, and changes it with Place alone.
type Policy interface {
	// Decide is called after every instant at which something happened: jobs
	// arrived or ended, nodes failed or returned, or a time came that the policy
	// asked for with Wake.
	Decide(w *World)
}

// World is the simulated cluster and its jobs.
type World struct {
	Options
	Now     time.Duration // since the trace's begin
	Nodes   []Node
	Live    []*Job // that have arrived and not ended, by submission
	Apps    []*App // all, by submission of their first job
	Arrived []*Job // at this instant
	Ended   []*Job // at this instant
	GPUs    int    // of all nodes, up or down
	Free    int    // of nodes that are up

	jobs     []*Job
	next     int // of jobs to arrive
	ends     ends
	wake     time.Duration
	failures []failure
	run      run
}

// Node is a machine.
type Node struct {
	*cluster.Node
	Total int
	Free  int // GPUs; 0 while it is down
	Down  bool
}

// Share is GPUs on one node.
type Share struct{ Node, GPUs int }

// App is the unit of fairness.
type App struct {
	ID     string
	Index  int // in World.Apps
	User   string
	Submit time.Duration
	End    time.Duration // of its last job, once all have ended
	Jobs   []*Job        // all of them, arrived or not
	Left   int           // jobs that have not ended
}

// Job is a job of the trace and how far it is.
type Job struct {
	*trace.Job
	Index    int
	App      *App
	Work     float64       // GPU-seconds at S = 1
	Done     float64       // of it, as of World.Now after Sync
	Attained float64       // GPU-seconds held so far, restarts included, after Sync
	On       []Share       // where it runs; empty: it waits
	Held     int           // GPUs
	Rate     float64       // GPU-seconds of work a second, when warm
	Told     time.Duration // run time that its user declares, on all its GPUs; 0: none
	Ran      bool          // it has run before
	Since    time.Duration // it has run, or waited, since
	End      time.Duration
	warm     time.Duration // until when it restarts
	synced   time.Duration
	saved    float64 // Done at its last checkpoint but those since warm
	version  int
	hint     cluster.Hint
}

// Finished says whether the job has ended.
func (j *Job) Finished() bool { return j.End > 0 }

// Guess is the work left as far as a scheduler knows: by what was declared, else
// by the limit, else an hour; a job that goes on beyond it has a twentieth to go.
func (j *Job) Guess() float64 {
	total := cmp.Or(j.Told, j.Limit, time.Hour).Seconds() * float64(j.GPUs)
	return max(total-j.Done, j.Done/20, 1)
}

// Speed is the job's S on these nodes.
func (w *World) Speed(j *Job, on []Share) float64 { return fairness.Speed(j.hint, w.Level(on)) }

// Level is how far apart they are.
func (w *World) Level(on []Share) cluster.Level {
	if len(on) <= 1 {
		return cluster.Machine
	}
	first := w.Nodes[on[0].Node].Rack
	for _, s := range on[1:] {
		if first == "" || w.Nodes[s.Node].Rack != first {
			return cluster.Cluster
		}
	}
	return cluster.Rack
}

// Sync brings Done and Attained of a job up to now.
func (w *World) Sync(j *Job) {
	if w.Now == j.synced {
		return
	}
	if j.Held > 0 {
		held := (w.Now - j.synced).Seconds() * float64(j.Held)
		work := max(w.Now-max(j.synced, j.warm), 0).Seconds() * j.Rate
		j.Attained += held
		j.Done = min(j.Done+work, j.Work)
		w.run.used += held
		w.run.speed += held * j.Rate / float64(j.Held)
	}
	j.synced = w.Now
}

// Wake asks for a Decide at that time, unless something happens earlier.
func (w *World) Wake(at time.Duration) {
	if at > w.Now && (w.wake == 0 || at < w.wake) {
		w.wake = at
	}
}

// Place lets a job have exactly these GPUs from now on; none: it waits. A job
// that has run before restarts, unless it keeps the very same.
func (w *World) Place(j *Job, on []Share) {
	if slices.Equal(on, j.On) {
		return
	}
	if j.Finished() {
		panic("sim: an ended job is placed")
	}
	w.Sync(j)
	w.take(j, -1)
	j.On, j.Held, j.Since = slices.Clone(on), 0, w.Now
	for _, s := range on {
		j.Held += s.GPUs
	}
	if j.Held > 0 && (j.Held > j.GPUs || !j.Elastic && j.Held < j.GPUs) {
		panic(fmt.Sprintf("sim: job %s of %d GPUs is given %d", j.ID, j.GPUs, j.Held))
	}
	w.take(j, 1)
	j.version++
	if j.Held == 0 {
		j.Rate = 0
		return
	}
	j.Rate = float64(j.Held) * w.Speed(j, on)
	j.warm, j.saved = w.Now, j.Done
	w.run.starts++
	if j.Ran {
		j.warm += w.Restart
		w.run.migrations++
	}
	j.Ran = true
	end := max(j.warm, w.Now) + ceil((j.Work-j.Done)/j.Rate)
	heap.Push(&w.ends, ending{end, j, j.version})
}

// ceil rounds up to a microsecond, so that a job's end is never before its work
// is done.
func ceil(s float64) time.Duration { return time.Duration(math.Ceil(s*1e6)) * time.Microsecond }

// take books a job's GPUs, or with sign -1 returns them.
func (w *World) take(j *Job, sign int) {
	for _, s := range j.On {
		n := &w.Nodes[s.Node]
		if n.Down {
			continue
		}
		n.Free -= sign * s.GPUs
		w.Free -= sign * s.GPUs
		if n.Free < 0 {
			panic(fmt.Sprintf("sim: node %s has %d GPUs too few", n.Name, -n.Free))
		}
	}
	w.run.lane(w, j, sign)
}

// NewWorld puts a trace on a cluster.
func NewWorld(t *trace.Trace, c *trace.Cluster, o Options) *World {
	o = o.withDefaults()
	w := &World{Options: o, GPUs: c.GPUs(), Free: c.GPUs()}
	w.run.init(o)
	for i := range c.Nodes {
		total, _ := c.Nodes[i].TotalGPUs()
		w.Nodes = append(w.Nodes, Node{Node: &c.Nodes[i], Total: total, Free: total})
	}
	apps := map[string]*App{}
	for i := range t.Jobs {
		tj := t.Jobs[i] // a copy
		app := apps[tj.App]
		if app == nil {
			app = &App{ID: tj.App, Index: len(w.Apps), User: tj.User, Submit: tj.Submit}
			apps[tj.App] = app
			w.Apps = append(w.Apps, app)
		}
		if o.Estimate != "declared" && tj.Limit == 0 {
			tj.Limit = usualLimit(max(tj.Full, tj.Runtime))
		}
		j := &Job{Job: &tj, Index: i, App: app, Work: tj.Work(), hint: cluster.Hint{Model: tj.Model, Place: tj.Place}}
		r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		if o.Estimate == "declared" {
			off := 1 + o.Error*(2*r.Float64()-1)
			if lie := o.Lies[app.ID]; lie > 0 {
				off *= lie
			}
			j.Told = max(time.Duration(float64(tj.Runtime)*off), time.Second)
		}
		app.Jobs = append(app.Jobs, j)
		app.Left++
		w.jobs = append(w.jobs, j)
	}
	w.breakNodes()
	return w
}

// usualLimit is the time limit of a job whose trace has none: the next of those
// that sites commonly offer.
func usualLimit(d time.Duration) time.Duration {
	for _, h := range []time.Duration{1, 2, 4, 8, 12, 24, 48, 96, 168} {
		if d <= h*time.Hour {
			return h * time.Hour
		}
	}
	return 2 * d
}

// Run plays the trace to its end under a policy, or until Progress says stop.
func (w *World) Run(p Policy) {
	for w.advance() {
		p.Decide(w)
		w.run.events++
		if w.Progress != nil && w.run.events%256 == 0 && !w.Progress(w.Now, w.next-len(w.Live), len(w.jobs)) {
			return
		}
	}
	for _, j := range w.Live {
		w.Sync(j)
	}
}

// advance moves to the next instant at which something happens; false if
// nothing ever will.
func (w *World) advance() bool {
	at := time.Duration(math.MaxInt64)
	if w.next < len(w.jobs) {
		at = w.jobs[w.next].Submit
	}
	for len(w.ends) > 0 && w.ends[0].version != w.ends[0].job.version {
		heap.Pop(&w.ends)
	}
	if len(w.ends) > 0 {
		at = min(at, w.ends[0].at)
	}
	if at == math.MaxInt64 && len(w.Live) == 0 {
		return false
	}
	if w.wake > 0 {
		at = min(at, w.wake)
	}
	if len(w.failures) > 0 {
		at = min(at, w.failures[0].at)
	}
	if at == math.MaxInt64 {
		return false // jobs that fit nowhere
	}
	w.Now = max(at, w.Now)
	if w.wake <= w.Now {
		w.wake = 0
	}
	w.Arrived, w.Ended = w.Arrived[:0], w.Ended[:0]
	for len(w.ends) > 0 && w.ends[0].at <= w.Now {
		if e := heap.Pop(&w.ends).(ending); e.version == e.job.version {
			w.finish(e.job)
		}
	}
	if len(w.Ended) > 0 {
		w.Live = slices.DeleteFunc(w.Live, (*Job).Finished)
	}
	for len(w.failures) > 0 && w.failures[0].at <= w.Now {
		w.fail(w.failures[0])
		w.failures = w.failures[1:]
	}
	for ; w.next < len(w.jobs) && w.jobs[w.next].Submit <= w.Now; w.next++ {
		j := w.jobs[w.next]
		j.synced, j.Since = w.Now, w.Now
		w.Live = append(w.Live, j)
		w.Arrived = append(w.Arrived, j)
	}
	return true
}

func (w *World) finish(j *Job) {
	w.Sync(j)
	w.take(j, -1)
	j.Done, j.End = j.Work, max(w.Now, 1)
	j.On, j.Held, j.Rate = nil, 0, 0
	j.version++
	w.Ended = append(w.Ended, j)
	if j.App.Left--; j.App.Left == 0 {
		j.App.End = j.End
	}
}

// failure is a node's going down, or its return.
type failure struct {
	at   time.Duration
	node int
	back bool
}

// breakNodes draws when nodes fail: for each node apart, times between failures
// exponential with mean MTBF, to ten times the longest that the trace could need.
func (w *World) breakNodes() {
	if w.MTBF <= 0 || len(w.jobs) == 0 {
		return
	}
	var work float64
	for _, j := range w.jobs {
		work += j.Work
	}
	until := w.jobs[len(w.jobs)-1].Submit + 10*ceil(work/float64(max(w.GPUs, 1))) + 24*time.Hour
	for i := range w.Nodes {
		r := rand.New(rand.NewPCG(w.Seed^0x5eed, uint64(i)))
		for at := time.Duration(0); ; {
			at += time.Duration(r.ExpFloat64() * float64(w.MTBF))
			if at > until {
				break
			}
			w.failures = append(w.failures, failure{at, i, false}, failure{at + w.Repair, i, true})
			at += w.Repair
		}
	}
	slices.SortFunc(w.failures, func(x, y failure) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.node, y.node))
	})
}

// fail takes a node down: its jobs fall back to their last checkpoints and wait.
func (w *World) fail(f failure) {
	n := &w.Nodes[f.node]
	if f.back {
		n.Down, n.Free = false, n.Total
		w.Free += n.Total
		return
	}
	w.run.failures++
	for _, j := range w.Live {
		if slices.ContainsFunc(j.On, func(s Share) bool { return s.Node == f.node }) {
			w.Sync(j)
			every := w.Checkpoint.Seconds() * j.Rate
			kept := j.saved + math.Floor((j.Done-j.saved)/every)*every
			w.run.lost += j.Done - kept
			j.Done = kept
			w.Place(j, nil)
		}
	}
	w.Free -= n.Free
	n.Down, n.Free = true, 0
}

// ending is when a job will end if nothing about it changes.
type ending struct {
	at      time.Duration
	job     *Job
	version int
}

type ends []ending

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].job.Index < e[j].job.Index
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(ending)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
