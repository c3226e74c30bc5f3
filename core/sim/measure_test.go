// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// Two apps on four GPUs: A has jobs a and b, B has c.
//
//	a  0-20 s, 4 GPUs, 10 s alone     b  0-10 s, 2 GPUs, 5 s alone
//	c  10-20 s, 4 GPUs, 5 s alone
func TestMeasureByHand(t *testing.T) {
	jobs := []Outcome{
		{App: 0, Submit: 0, End: 20, Work: 40, GPUs: 4, Runtime: 10},
		{App: 0, Submit: 0, End: 10, Work: 10, GPUs: 2, Runtime: 5},
		{App: 1, Submit: 10, End: 20, Work: 20, GPUs: 4, Runtime: 5},
	}
	refs := References(jobs, 2, 4)
	// A alone until 10 (40 of 50), then 2 GPUs each until 15, then B.
	if refs[0] != 15 || refs[1] != 17.5 {
		t.Fatalf("references %v", refs)
	}
	perApp, rho := Measure(jobs, refs, 2, 4)
	want := []map[string]float64{
		{
			"reference": 20. / 15,
			"share":     20 / (50 * 1.5 / 4), // N: 1, then 2
			"paper":     20 / (12.5 * 1.5),
			"shockwave": 20 / (12.5 * (1.25*10 + 2.25*10) / 20), // par 50/10 and 4: 5/4, then 9/4
		},
		{"reference": 10 / 7.5, "share": 10 / 10., "paper": 10 / 10., "shockwave": 10 / (5 * 2.25)},
	}
	for i, by := range want {
		if len(perApp[i]) != len(by) {
			t.Errorf("app %d has %v", i, perApp[i])
		}
		for name, w := range by {
			if got := perApp[i][name]; !near(got, w) {
				t.Errorf("app %d: %s %v, want %v", i, name, got, w)
			}
		}
	}
	// job: 10/4 had arrived by both ends (c arrives as b ends), of a and b; alone 10, 5, 5 s.
	ever := []float64{20 / (10 * 2.5), 10 / (5 * 2.5), 10 / (5 * 2.5)}
	// job-live: 6/4 until 10, then 8/4.
	live := []float64{20 / (10 * 1.75), 10 / (5 * 1.5), 10 / (5 * 2.)}
	for name, w := range map[string][]float64{"job": ever, "job-live": live} {
		if got := rho[name]; !near(got.Max, max(w[0], w[1], w[2])) || !near(got.Mean, (w[0]+w[1]+w[2])/3) {
			t.Errorf("%s %+v, want of %v", name, got, w)
		}
	}
	for _, d := range Definitions {
		if _, ok := rho[d.Name]; !ok {
			t.Errorf("no %s", d.Name)
		}
	}
}

func TestMeasureSum(t *testing.T) {
	var rho []float64
	for i := range 200 {
		rho = append(rho, float64(200-i)/100) // .01 to 2
	}
	got := sum(rho)
	if got.Max != 2 || got.P99 != 1.98 || got.Median != 1 || !near(got.Mean, 1.005) || !near(got.Unfair, 95./200) {
		t.Errorf("%+v", got)
	}
	if got := sum([]float64{3, 3, 3}); !near(got.Jain, 1) || got.Median != 3 || got.P99 != 3 {
		t.Errorf("equals: %+v", got)
	}
	if got := sum([]float64{1, 2}); !near(got.Jain, 1.5*1.5/(2*1.25)) || got.Median != 1 {
		t.Errorf("1, 2: %+v", got)
	}
	if got := sum(nil); got != (Rho{}) {
		t.Errorf("none: %+v", got)
	}
}

// Against the definitions taken second by second.
func TestMeasureAgainstDumb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t, 6, 3)
		gpus := rapid.IntRange(1, 20).Draw(t, "cluster")
		for i := range jobs {
			jobs[i].End = jobs[i].Submit + float64(rapid.IntRange(0, 300).Draw(t, "time"))
		}
		apps := appsOf(jobs)
		refs := References(jobs, apps, gpus)
		perApp, rho := Measure(jobs, refs, apps, gpus)

		type app struct{ submit, end, work, gpus, cp, par float64 }
		all, total := make([]app, apps), float64(gpus)
		for i := range all {
			a := &all[i]
			a.submit = math.Inf(1)
			for _, j := range jobs {
				if j.App == i {
					a.submit, a.end = min(a.submit, j.Submit), max(a.end, j.End)
					a.work, a.gpus, a.cp = a.work+j.Work, a.gpus+j.GPUs, max(a.cp, j.Runtime)
				}
			}
			a.par = min(a.gpus, a.work/a.cp)
		}
		for i, a := range all {
			var n, d, secs float64
			for s := a.submit; s < a.end; s++ {
				var demand float64
				for _, o := range all {
					if o.submit <= s && s < o.end {
						n++
						demand += o.par
					}
				}
				d += max(1, demand/total)
				secs++
			}
			if n, d = n/secs, d/secs; secs == 0 {
				continue
			}
			alone := max(a.cp, a.work/min(total, a.gpus))
			for name, ideal := range map[string]float64{"reference": refs[i] - a.submit, "share": max(a.cp, a.work*n/total), "paper": alone * n, "shockwave": alone * d} {
				if got, want := perApp[i][name], secs/ideal; !near(got, want) {
					t.Errorf("app %d: %s %v, want %v", i, name, got, want)
				}
			}
		}
		var ever, live float64
		for _, j := range jobs {
			var arrived, d float64
			for _, o := range jobs {
				if o.Submit <= j.End {
					arrived += o.GPUs
				}
			}
			for s := j.Submit; s < j.End; s++ {
				var demand float64
				for _, o := range jobs {
					if o.Submit <= s && s < o.End {
						demand += o.GPUs
					}
				}
				d += max(1, demand/total)
			}
			if secs := j.End - j.Submit; secs > 0 {
				ever = max(ever, secs/(j.Runtime*arrived/total))
				live = max(live, secs/(j.Runtime*d/secs))
			}
		}
		if !near(rho["job"].Max, ever) || !near(rho["job-live"].Max, live) {
			t.Errorf("job %v, want %v; job-live %v, want %v", rho["job"].Max, ever, rho["job-live"].Max, live)
		}
		for name, r := range rho {
			if r.Median > r.P99 || r.P99 > r.Max || r.Jain > 1+1e-9 || math.IsNaN(r.Jain) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	})
}

// The fluid schedule is fair by its own measure, and no work is no unfairness.
func TestMeasureOfFluid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t, 6, 1)
		apps := appsOf(jobs) + 1
		jobs = append(jobs, Outcome{App: apps - 1, Submit: 5, End: 50, GPUs: 1})
		refs := References(jobs, apps, 8)
		for i := range jobs[:len(jobs)-1] {
			jobs[i].End = refs[jobs[i].App]
		}
		_, rho := Measure(jobs, refs, apps, 8)
		if r := rho["reference"]; !near(r.Max, 1) || !near(r.Mean, 1) || !near(r.Jain, 1) || r.Unfair != 0 {
			t.Errorf("%+v", r)
		}
	})
}
