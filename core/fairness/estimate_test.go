// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

func TestJudge(t *testing.T) {
	const h, m = time.Hour, time.Minute
	past := func(took ...time.Duration) (runs []Run) {
		for _, d := range took {
			runs = append(runs, Run{Took: d, Limit: 10 * h})
		}
		return runs
	}
	said := func(ratios ...float64) Honesty {
		var runs []Run
		for i, r := range ratios {
			declared := time.Duration(i+1) * h
			runs = append(runs, Run{Took: seconds(r * declared.Seconds()), Declared: declared})
		}
		return HonestyOf(runs)
	}
	job := func(limit, declared time.Duration) *cluster.Job {
		return &cluster.Job{Limit: limit, Hint: cluster.Hint{Runtime: declared}}
	}
	ended := job(0, h)
	ended.State = cluster.Ended
	requeued := job(h, 0)
	requeued.Restarts = 1
	cases := []struct {
		name string
		job  *cluster.Job
		ev   Evidence
		want Estimate
	}{
		{"nothing known", job(0, 0), Evidence{}, Estimate{h, Guess}},
		{"the limit", job(4*h, 0), Evidence{Past: past(1, 2)}, Estimate{4 * h, Limit}},
		{"history: one odd run moves it little", job(20*h, 0), Evidence{Past: past(h, h, 9*h, h)}, Estimate{2 * h, History}},
		{"declared beats history", job(20*h, h), Evidence{Past: past(h, h, h)}, Estimate{h, Declared}},
		{"no more than the limit", job(h, 3*h), Evidence{}, Estimate{h, Declared}},
		{"progress beats a declaration", job(20*h, h), Evidence{Report: &Report{Progress: 0.25, Attained: h}}, Estimate{4 * h, Reported}},
		{"remaining", job(20*h, 0), Evidence{Report: &Report{Remaining: 2 * h, Attained: h}}, Estimate{3 * h, Reported}},

		{"two runs prove nothing", job(0, h), Evidence{Said: said(2, 2)}, Estimate{h, Declared}},
		{"always half", job(0, h), Evidence{Said: said(2, 2, 2)}, Estimate{2 * h, Corrected}},
		{"always a tenth", job(0, h), Evidence{Said: said(10, 10, 10)}, Estimate{10 * h, Corrected}},
		{"always double", job(0, h), Evidence{Said: said(.5, .5, .5)}, Estimate{30 * m, Corrected}},
		{"a thousandth: by 20 at most", job(0, h), Evidence{Said: said(1e3, 1e3, 1e3)}, Estimate{20 * h, Corrected}},
		{"a thousandfold: by 20 at most", job(0, h), Evidence{Said: said(1e-3, 1e-3, 1e-3)}, Estimate{3 * m, Corrected}},
		{"a thousandth, with a limit: it says nothing", job(9*h, h), Evidence{Said: said(1e3, 1e3, 1e3)}, Estimate{9 * h, Limit}},
		{"a thousandth, with a history", job(0, h), Evidence{Said: said(1e3, 1e3, 1e3), Past: []Run{{Took: 2 * h}, {Took: 2 * h}, {Took: 2 * h}}}, Estimate{2 * h, History}},
		{"the limit bounds a correction", job(90*m, h), Evidence{Said: said(2, 2, 2)}, Estimate{90 * m, Corrected}},
		{"near enough", job(0, h), Evidence{Said: said(1.24, .81, 1.2)}, Estimate{h, Declared}},
		{"one odd run in five", job(0, h), Evidence{Said: said(1, 1, 50, 1, 1)}, Estimate{h, Declared}},
		{"one honest run of a liar", job(0, h), Evidence{Said: said(2, 2, 1, 2)}, Estimate{2 * h, Corrected}},
		{"an even number: between the middle two", job(0, h), Evidence{Said: said(2, 8, 2, 8)}, Estimate{4 * h, Corrected}},
		{"scattered, history known", job(20*h, h), Evidence{Past: past(h, h, h), Said: said(.1, 1, 10, .2, 5)}, Estimate{2 * h, History}},
		{"scattered, no history", job(0, h), Evidence{Past: past(h, h), Said: said(.1, 1, 10, .2, 5)}, Estimate{h, Declared}},
		{"a report beats a correction", job(0, h), Evidence{Report: &Report{Progress: .5, Attained: h}, Said: said(9, 9, 9)}, Estimate{2 * h, Reported}},

		{"running on beyond its estimate", job(0, h), Evidence{Attained: 2 * h}, Estimate{126 * m, Declared}},
		{"said to be done, yet it runs", job(0, 0), Evidence{Report: &Report{Progress: 1, Attained: h}, Attained: 2 * h}, Estimate{126 * m, Reported}},
		{"a second left, an hour ago", job(0, 0), Evidence{Report: &Report{Remaining: time.Second, Attained: h}, Attained: 2 * h}, Estimate{126 * m, Reported}},
		{"the limit bounds growth", job(2*h, h), Evidence{Attained: 119 * m}, Estimate{2 * h, Declared}},
		{"twice the limit after a requeue", requeued, Evidence{Attained: 100 * m}, Estimate{105 * m, Limit}},
		{"an ended job grows no more", ended, Evidence{Attained: 2 * h}, Estimate{h, Declared}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(c.job, c.ev)
			if (got.Total-c.want.Total).Abs() > time.Millisecond || got.Source != c.want.Source {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestEstimatesLearn lets a user with a habit submit jobs of random length. From
// the fourth on each estimate is within a quarter of the truth, whatever the
// habit, and an honest user's declaration is never touched. A liar that runs one
// honest or freak job in between is not believed again for it.
func TestEstimatesLearn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		habit := rapid.SampledFrom([]float64{.1, .5, 1, 2, 10}).Draw(t, "declared over true")
		odd := rapid.IntRange(0, 19).Draw(t, "odd run")
		var said []Run
		for i := range 20 {
			truth := seconds(rapid.Float64Range(60, 1e5).Draw(t, "truth"))
			j := &cluster.Job{}
			j.Hint.Runtime = seconds(truth.Seconds() * habit * rapid.Float64Range(.9, 1.1).Draw(t, "blur"))
			e := Judge(j, Evidence{Said: HonestyOf(said)})
			if habit == 1 && e != (Estimate{j.Hint.Runtime, Declared}) {
				t.Fatalf("job %d of an honest user: %v for %s", i, e, j.Hint.Runtime)
			}
			if r := e.Total.Seconds() / truth.Seconds(); i >= 3 && (r < .75 || r > 1.25) {
				t.Fatalf("job %d takes %s, estimated %v", i, truth, e)
			}
			if i == odd {
				truth = seconds(truth.Seconds() * rapid.SampledFrom([]float64{.001, habit, 1000}).Draw(t, "freak"))
			}
			said = append(said, Run{Took: truth, Declared: j.Hint.Runtime})
		}
	})
}

// TestRandomDeclarations: who declares at random, over two orders of magnitude,
// is judged by the record of like jobs as soon as it exists.
func TestRandomDeclarations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := seconds(rapid.Float64Range(60, 1e5).Draw(t, "truth"))
		var said []Run
		off := 1 / 30.0
		for range 15 { // an even spread in a random order
			said = append(said, Run{Took: truth, Declared: seconds(truth.Seconds() * off)})
			off *= math.Pow(900, 1.0/14)
		}
		said = rapid.Permutation(said).Draw(t, "said")
		j := &cluster.Job{Hint: cluster.Hint{Runtime: said[0].Declared}}
		if e := Judge(j, Evidence{Said: HonestyOf(said), Past: said}); e.Source != History || (e.Total-truth).Abs() > time.Microsecond {
			t.Fatalf("got %v, want %s from history", e, truth)
		}
	})
}

// TestNearlyDoneForEver: whatever a running job declares and reports, it has at
// least a twentieth of what it attained still to go.
func TestNearlyDoneForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &cluster.Job{State: cluster.Running}
		j.Hint.Runtime = seconds(rapid.Float64Range(0, 1e5).Draw(t, "declared"))
		ev := Evidence{Attained: seconds(rapid.Float64Range(0, 1e6).Draw(t, "attained"))}
		if rapid.Bool().Draw(t, "reports") {
			ev.Report = &Report{Remaining: seconds(rapid.Float64Range(0, 10).Draw(t, "remaining")), Progress: rapid.Float64Range(0, 1).Draw(t, "progress"),
				Attained: seconds(rapid.Float64Range(0, ev.Attained.Seconds()).Draw(t, "then"))}
		}
		if left := Judge(j, ev).Total - ev.Attained; left < ev.Attained/20-time.Microsecond {
			t.Fatalf("%s done and only %s to go", ev.Attained, left)
		}
	})
}
