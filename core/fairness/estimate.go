// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"sort"
	"time"

	"themis/core/cluster"
)

// Source says where an estimate of a job's run time came from.
type Source string

// Sources, the best first.
const (
	Declared Source = "declared" // runtime= hint
	Reported Source = "reported" // remaining= or progress= of a running job
	History  Source = "history"  // the ledger's record of like jobs
	Limit    Source = "limit"    // the time limit
	Guess    Source = "guess"    // nothing is known
)

// guessed is the run time of a job of which nothing is known, not even a limit.
const guessed = time.Hour

// Estimate is a job's whole run time at its full size and S = 1.
type Estimate struct {
	Total  time.Duration
	Source Source
}

// Report is the latest that a running job said of itself and what it had
// attained (run time at S = 1) when it said so.
type Report struct {
	Remaining time.Duration
	Progress  float64
	Attained  time.Duration
}

// Run is a finished run of a like job: how long it took and its limit.
type Run struct {
	Took, Limit time.Duration
}

// historySamples is how many runs make a history (design: from 3 on).
const historySamples = 3

// Judge returns the first estimate that is known: a progress report (it knows
// of the declaration and is younger), the declaration, history, the limit. A
// time limit bounds all of them.
func Judge(j *cluster.Job, report *Report, past []Run) Estimate {
	e := Estimate{guessed, Guess}
	switch {
	case report != nil && report.Progress > 0 && report.Attained > 0:
		e = Estimate{seconds(report.Attained.Seconds() / report.Progress), Reported}
	case report != nil && report.Remaining > 0:
		e = Estimate{report.Attained + report.Remaining, Reported}
	case j.Hint.Runtime > 0:
		e = Estimate{j.Hint.Runtime, Declared}
	case len(past) >= historySamples:
		e = Estimate{quantile(past, j.Limit), History}
	case j.Limit > 0:
		e = Estimate{j.Limit, Limit}
	}
	// A job that was requeued may run longer in all than its limit.
	if most := j.Limit * time.Duration(1+j.Restarts); j.Limit > 0 && e.Total > most {
		e.Total = most
	}
	return e
}

// quantile is the 70th percentile of actual over limit, times the job's limit;
// of actual run times where limits are missing. One odd run moves it little.
func quantile(past []Run, limit time.Duration) time.Duration {
	ratios, times := make([]float64, 0, len(past)), make([]float64, 0, len(past))
	for _, r := range past {
		times = append(times, r.Took.Seconds())
		if r.Limit > 0 {
			ratios = append(ratios, r.Took.Seconds()/r.Limit.Seconds())
		}
	}
	if limit > 0 && len(ratios) == len(past) {
		return seconds(at(ratios, 0.7) * limit.Seconds())
	}
	return seconds(at(times, 0.7))
}

func at(values []float64, q float64) float64 {
	sort.Float64s(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// Speeds by model: S at slot, machine and rack, as in the authors' simulator
// (paper.md's table); the cluster level is taken as the rack's.
var models = map[string][]float64{
	"vgg19": {1, .70, .50, .50}, "vgg16": {1, .72, .52, .52}, "vgg11": {1, .75, .56, .56},
	"alexnet":    {1, .80, .64, .64},
	"inception3": {1, .98, .96, .96}, "inception4": {1, .98, .96, .96}, "googlenet": {1, .98, .96, .96},
	"resnet50": {1, .98, .96, .96}, "resnet101": {1, .98, .96, .96}, "resnet152": {1, .98, .96, .96},
	"network": {1, .9, .7, .5}, "compute": {1, 1, .98, .96},
}

// defaultSpeed is S of a job that declares neither place= nor a known model=.
var defaultSpeed = []float64{1, 1, .9, .85}

// Speed is S of a job at a placement level: its speed as a fraction of that
// within a slot, relative to one machine, since slots are not told apart.
func Speed(h cluster.Hint, level cluster.Level) float64 {
	s := defaultSpeed
	if m, ok := models[h.Model]; ok {
		s = m
	}
	if len(h.Place) > 0 {
		s = h.Place
	}
	last := len(s) - 1
	return s[min(int(level), last)] / s[min(int(cluster.Machine), last)]
}

// Models lists the names that the model= hint knows, sorted.
func Models() []string {
	names := make([]string, 0, len(models))
	for n := range models {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
