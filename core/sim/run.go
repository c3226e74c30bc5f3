// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
	"time"
)

// run is what is counted while a trace is played.
type run struct {
	used, speed, lost float64 // GPU-seconds held; the same times S; work lost to failures
	starts            int
	migrations        int
	failures          int
	events            int
	keep              bool
	lanes             []Lane
	open              map[[2]int]int // lane by job and node
	busy              []step
}

// step is the number of GPUs in use from a time on.
type step struct {
	at   time.Duration
	gpus int
}

func (r *run) init(o Options) { r.keep, r.open = o.Lanes, map[[2]int]int{} }

// lane follows a job onto its nodes, or with sign -1 from them.
func (r *run) lane(w *World, j *Job, sign int) {
	if len(j.On) == 0 {
		return
	}
	gpus := sign * j.Held
	if sign > 0 {
		gpus = 0
		for _, s := range j.On {
			gpus += s.GPUs
		}
	}
	if n := len(r.busy); n > 0 {
		gpus += r.busy[n-1].gpus
		if r.busy[n-1].at == w.Now {
			r.busy = r.busy[:n-1]
		}
	}
	r.busy = append(r.busy, step{w.Now, gpus})
	if !r.keep {
		return
	}
	for _, s := range j.On {
		key := [2]int{j.Index, s.Node}
		if sign > 0 {
			r.open[key] = len(r.lanes)
			r.lanes = append(r.lanes, Lane{Node: w.Nodes[s.Node].Name, From: w.Now.Hours(), GPUs: s.GPUs, App: j.App.Index})
		} else if i, ok := r.open[key]; ok {
			r.lanes[i].To = w.Now.Hours()
			delete(r.open, key)
		}
	}
}

// busyParts is how many equal parts of the makespan Busy has.
const busyParts = 240

// parts is the mean share of GPUs in use in equal parts of the time to end.
func (r *run) parts(end time.Duration, gpus int) []float64 {
	out := make([]float64, busyParts)
	if end <= 0 || gpus == 0 {
		return out
	}
	part := float64(end) / busyParts
	for i, s := range r.busy {
		until := end
		if i+1 < len(r.busy) {
			until = min(end, r.busy[i+1].at)
		}
		from, to := float64(s.at), float64(until)
		for k := min(int(from/part), busyParts-1); k < busyParts && float64(k)*part < to; k++ {
			in := min(to, float64(k+1)*part) - max(from, float64(k)*part)
			out[k] += max(in, 0) / part * float64(s.gpus) / float64(gpus)
		}
	}
	return out
}

// Result sums the run up. refs are the apps' reference ends, in seconds.
func (w *World) Result(name, title string, refs []float64) PolicyResult {
	res := PolicyResult{Policy: name, Title: title, Starts: w.run.starts, Migrations: w.run.migrations,
		Failures: w.run.failures, Events: w.run.events, Lanes: w.run.lanes,
		GPUHours: w.run.used / 3600}
	var outcomes []Outcome
	var makespan time.Duration
	for _, j := range w.jobs {
		if !j.Finished() {
			res.Unfinished++
			continue
		}
		makespan = max(makespan, j.End)
	}
	for _, j := range w.jobs {
		end := j.End
		if !j.Finished() {
			end = max(w.Now, makespan)
		}
		outcomes = append(outcomes, Outcome{App: j.App.Index, Submit: j.Submit.Seconds(), End: end.Seconds(),
			Work: j.Work, GPUs: float64(j.GPUs), Runtime: j.Runtime.Seconds()})
	}
	perApp, rho := Measure(outcomes, refs, len(w.Apps), w.GPUs)
	res.Rho = rho
	res.Makespan = makespan.Hours()
	all := float64(w.GPUs) * res.Makespan
	res.IdleHours = max(all-res.GPUHours, 0)
	if all > 0 {
		res.Utilisation = res.GPUHours / all
	}
	if w.run.used > 0 {
		res.Placement = w.run.speed / w.run.used
	}
	res.Busy = w.run.parts(makespan, w.GPUs)
	var jcts []float64
	for i, app := range w.Apps {
		a := AppResult{App: app.ID, User: app.User, Jobs: len(app.Jobs), Submit: app.Submit.Hours(), End: app.End.Hours(), Rho: perApp[i]}
		if i < len(refs) {
			a.Ref = refs[i] / 3600
		}
		for _, j := range app.Jobs {
			a.GPUHour += j.Work / 3600
		}
		if app.Left == 0 {
			jcts = append(jcts, a.End-a.Submit)
			res.JCTMean += a.End - a.Submit
		}
		res.PerApp = append(res.PerApp, a)
	}
	if n := len(jcts); n > 0 {
		slices.SortFunc(jcts, func(a, b float64) int { return cmp.Compare(a, b) })
		res.JCTMean /= float64(n)
		res.JCTMedian, res.JCTP99 = jcts[(n-1)/2], jcts[min(n-1, n*99/100)]
	}
	return res
}
