// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"math"
	"slices"
	"sort"
	"time"

	"themis/core/cluster"
)

// Source says where an estimate of a job's run time came from.
type Source string

// Sources, the best first.
const (
	Reported  Source = "reported"  // remaining= or progress= of a running job
	Declared  Source = "declared"  // runtime= hint
	Corrected Source = "corrected" // declared, times what this user's declarations proved wrong by
	History   Source = "history"   // the ledger's record of like jobs
	Limit     Source = "limit"     // the time limit
	Guess     Source = "guess"     // nothing is known
)

// guessed is the run time of a job of which nothing is known, not even a limit.
const guessed = time.Hour

// Estimate is a job's whole run time at S = 1, in its smallest form (-N's least).
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

// Run is a completed run: how long it took (at S = 1), its time limit and the
// run time that its user had declared. A limit or declaration of 0 is none.
type Run struct {
	Took, Limit, Declared time.Duration
}

// Honesty is what a user's runs took over what had been declared for them, as
// logarithms.
type Honesty struct {
	Runs   int
	Middle float64 // their median
	Off    float64 // and that of how far they are from it
}

// HonestyOf compares runs, all of them with a declaration.
func HonestyOf(runs []Run) Honesty {
	if len(runs) == 0 {
		return Honesty{}
	}
	wrong := make([]float64, len(runs))
	for i, r := range runs {
		wrong[i] = math.Log(r.Took.Seconds() / r.Declared.Seconds())
	}
	h := Honesty{Runs: len(runs), Middle: median(wrong)}
	for i := range wrong {
		wrong[i] = math.Abs(wrong[i] - h.Middle)
	}
	h.Off = median(wrong)
	return h
}

// Evidence is what is known of a job beside what its host says of it.
type Evidence struct {
	Report   *Report       // nil: it has said nothing
	Attained time.Duration // run time at S = 1 so far
	Past     []Run         // of like jobs
	Said     Honesty       // of its user's jobs of any kind, those with a declaration
	// Mean is the job's speed on the cluster's mean GPU, for which run times are
	// kept, and Fastest how much faster it can be; 0 reads as 1.
	Mean, Fastest float64
}

// historySamples is how many runs make a history (design: from 3 on).
const historySamples = 3

// A declaration stands as long as its user's runs took honestLeast to honestMost
// of what was declared; beyond, it is corrected. One that is off by more than
// correctMost says nothing, if anything else is known.
const (
	honestLeast, honestMost = 0.8, 1.25
	correctMost             = 20
)

// Overrun is how far the estimate of a job stays ahead of what it has attained.
const Overrun = 1.05

// Judge returns the first estimate that is known: a progress report (it knows
// of the declaration and is younger), the declaration as far as its user is to
// be believed, history, the limit. A job that goes on beyond its estimate has
// it grow, so that saying little, or "nearly done" for ever, gains nothing. A
// time limit bounds all of them.
func Judge(j *cluster.Job, ev Evidence) Estimate {
	e := Estimate{guessed, Guess}
	switch r := ev.Report; {
	case r != nil && r.Progress > 0 && r.Attained > 0:
		e = Estimate{seconds(r.Attained.Seconds() / r.Progress), Reported}
	case r != nil && r.Remaining > 0:
		e = Estimate{r.Attained + r.Remaining, Reported}
	case j.Hint.Runtime > 0:
		e = believe(j, ev)
	case len(ev.Past) >= historySamples:
		e = Estimate{quantile(ev.Past, j.Limit), History}
	case j.Limit > 0:
		e = Estimate{j.Limit, Limit}
	}
	if j.State != cluster.Completing && j.State != cluster.Ended {
		e.Total = max(e.Total, seconds(ev.Attained.Seconds()*Overrun))
	}
	// A job that was requeued may run longer in all than its limit.
	most := j.Limit * time.Duration(1+j.Restarts)
	if ev.Fastest > 1 {
		most = time.Duration(float64(most) * ev.Fastest)
	}
	if j.Limit > 0 && e.Total > most {
		e.Total = most
	}
	return e
}

// believe corrects the declaration by the median of what its user's runs took
// over what was declared. Where that is no guide, as half of the runs are more
// than a factor of 2 off it (median absolute deviation of the logarithms), or it
// is too far off to mean anything, the record of like jobs is taken, if there is
// one, and in the latter case else the time limit.
func believe(j *cluster.Job, ev Evidence) Estimate {
	e := Estimate{j.Hint.Runtime, Declared}
	if ev.Mean > 0 {
		e.Total = time.Duration(float64(e.Total) / ev.Mean)
	}
	if ev.Said.Runs < historySamples {
		return e
	}
	useless := math.Abs(ev.Said.Middle) > math.Log(correctMost)
	switch ratio := math.Exp(ev.Said.Middle); {
	case (useless || ev.Said.Off > math.Ln2) && len(ev.Past) >= historySamples:
		e = Estimate{quantile(ev.Past, j.Limit), History}
	case useless && j.Limit > 0:
		e = Estimate{j.Limit, Limit}
	case ratio < honestLeast || ratio > honestMost:
		ratio = min(max(ratio, 1.0/correctMost), correctMost)
		e = Estimate{seconds(e.Total.Seconds() * ratio), Corrected}
	}
	return e
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
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
