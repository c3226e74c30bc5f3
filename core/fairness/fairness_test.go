// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestFluidByHand(t *testing.T) {
	// Two users on 8 GPUs: each gets 4. Alice's two apps get 2 each of hers;
	// bob's one app can use only 2, so 2 more go to alice.
	f := NewFluid(start)
	f.Add("a1", "alice", 1, 3*3600, 8)
	f.Add("a2", "alice", 1, 3*3600, 8)
	f.Add("b1", "bob", 1, 2*3600, 2)
	f.Advance(start, 8)
	for app, want := range map[string]float64{"a1": 3, "a2": 3, "b1": 2} {
		if got := f.Rates()[app]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s gets %g GPUs, want %g", app, got, want)
		}
	}
	for app, ref := range f.Project() {
		if want := start.Add(time.Hour); ref.Sub(want).Abs() > time.Millisecond {
			t.Errorf("%s would end at %s, want %s", app, ref, want)
		}
	}
	if f.Project() != nil {
		t.Error("nothing changed, yet the references did")
	}
}

// TestFluidAgreesWithSmallSteps compares the event-driven schedule with one that
// moves in tiny steps of time.
func TestFluidAgreesWithSmallSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := NewFluid(start)
		gpus := rapid.IntRange(1, 16).Draw(t, "gpus")
		type app struct {
			entity    string
			left, par float64
			end       float64
		}
		var apps []app
		for i := range rapid.IntRange(1, 6).Draw(t, "apps") {
			a := app{entity: rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "user"),
				left: rapid.Float64Range(10, 400).Draw(t, "work"), par: float64(rapid.IntRange(1, 8).Draw(t, "par"))}
			apps = append(apps, a)
			f.Add(fmt.Sprint(i), a.entity, 1, a.left, a.par)
		}
		f.Advance(start, gpus)
		refs := f.Project()
		const step = 0.01
		for now, going := 0.0, len(apps); going > 0; now += step {
			var names []string
			want := map[string]float64{}
			for _, a := range apps {
				if a.left > 0 {
					if want[a.entity] == 0 {
						names = append(names, a.entity)
					}
					want[a.entity] += a.par
				}
			}
			var wants, weights []float64
			for _, n := range names {
				wants, weights = append(wants, want[n]), append(weights, 1)
			}
			for k, got := range WaterFill(float64(gpus), wants, weights) {
				var pars, ones []float64
				var ids []int
				for i, a := range apps {
					if a.entity == names[k] && a.left > 0 {
						pars, ones, ids = append(pars, a.par), append(ones, 1), append(ids, i)
					}
				}
				for n, r := range WaterFill(got, pars, ones) {
					a := &apps[ids[n]]
					if a.left -= r * step; a.left <= 0 {
						a.end = now + step
						going--
					}
				}
			}
		}
		for i, a := range apps {
			if got := refs[fmt.Sprint(i)].Sub(start).Seconds(); math.Abs(got-a.end) > 0.15 {
				t.Fatalf("app %d ends at %g s, in small steps at %g s", i, got, a.end)
			}
		}
	})
}

func TestWaterFillIsMaxMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		want, weight := make([]float64, n), make([]float64, n)
		var all float64
		for i := range want {
			want[i] = rapid.Float64Range(0, 10).Draw(t, "want")
			weight[i] = rapid.Float64Range(0.1, 5).Draw(t, "weight")
			all += want[i]
		}
		total := rapid.Float64Range(0, 40).Draw(t, "total")
		got := WaterFill(total, want, weight)
		var sum float64
		for i := range got {
			sum += got[i]
			if got[i] > want[i]+1e-9 || got[i] < 0 {
				t.Fatalf("%d wants %g and gets %g", i, want[i], got[i])
			}
			for j := range got { // nobody below its want has a smaller level than another
				if got[i] < want[i]-1e-9 && got[i]/weight[i] < got[j]/weight[j]-1e-9 && got[j] > 1e-9 {
					t.Fatalf("%d is short at level %g while %d has %g", i, got[i]/weight[i], j, got[j]/weight[j])
				}
			}
		}
		if math.Abs(sum-min(total, all)) > 1e-9 {
			t.Fatalf("%g of %g handed out, %g wanted", sum, total, all)
		}
	})
}

func TestRhoFallsWithRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Outlook{Now: start.Add(time.Hour), Submit: start, Reference: start.Add(seconds(rapid.Float64Range(-1e4, 1e5).Draw(t, "ref"))),
			Work: rapid.Float64Range(0, 1e7).Draw(t, "work"), Longest: seconds(rapid.Float64Range(0, 1e5).Draw(t, "longest")),
			FairRate: rapid.Float64Range(0, 64).Draw(t, "fair"), Lease: 10 * time.Minute}
		last := math.Inf(1)
		for rate := 0.0; rate < 128; rate += 4 {
			rho := o.Rho(rate)
			if !(rho > 0) || math.IsInf(rho, 0) || rho > last*(1+1e-9) {
				t.Fatalf("rho is %g at %g GPUs after %g", rho, rate, last)
			}
			last = rho
		}
	})
}

func TestJudge(t *testing.T) {
	past := func(took ...time.Duration) (runs []Run) {
		for _, d := range took {
			runs = append(runs, Run{Took: d, Limit: 10 * time.Hour})
		}
		return runs
	}
	job := func(limit, declared time.Duration) *cluster.Job {
		return &cluster.Job{Limit: limit, Hint: cluster.Hint{Runtime: declared}}
	}
	cases := []struct {
		name   string
		job    *cluster.Job
		report *Report
		past   []Run
		want   Estimate
	}{
		{"nothing known", job(0, 0), nil, nil, Estimate{time.Hour, Guess}},
		{"the limit", job(4*time.Hour, 0), nil, past(1, 2), Estimate{4 * time.Hour, Limit}},
		{"history: one odd run moves it little", job(20*time.Hour, 0), nil, past(time.Hour, time.Hour, 9*time.Hour, time.Hour), Estimate{2 * time.Hour, History}},
		{"declared beats history", job(20*time.Hour, time.Hour), nil, past(time.Hour, time.Hour, time.Hour), Estimate{time.Hour, Declared}},
		{"no more than the limit", job(time.Hour, 3*time.Hour), nil, nil, Estimate{time.Hour, Declared}},
		{"progress beats a declaration", job(20*time.Hour, time.Hour), &Report{Progress: 0.25, Attained: time.Hour}, nil, Estimate{4 * time.Hour, Reported}},
		{"remaining", job(20*time.Hour, 0), &Report{Remaining: 2 * time.Hour, Attained: time.Hour}, nil, Estimate{3 * time.Hour, Reported}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Judge(c.job, c.report, c.past); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
