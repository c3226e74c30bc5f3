// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"themis/core/fairness"
)

// draw makes jobs of a few apps; most arrive while others run.
func draw(t *rapid.T, apps, perApp int) []Outcome {
	var jobs []Outcome
	for app := range rapid.IntRange(1, apps).Draw(t, "apps") {
		for range rapid.IntRange(1, perApp).Draw(t, "jobs") {
			j := Outcome{App: app, GPUs: float64(rapid.IntRange(1, 8).Draw(t, "gpus")),
				Submit: float64(rapid.IntRange(0, 300).Draw(t, "submit")), Runtime: float64(rapid.IntRange(1, 200).Draw(t, "runtime"))}
			j.Work = j.GPUs * j.Runtime
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func appsOf(jobs []Outcome) int {
	n := 0
	for _, j := range jobs {
		n = max(n, j.App+1)
	}
	return n
}

// With few apps the core's own fluid schedule is exact.
func TestFluidIsTheCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t, 12, 4)
		gpus := rapid.IntRange(1, 20).Draw(t, "cluster")
		apps := appsOf(jobs)
		refs := References(jobs, apps, gpus)

		slices.SortStableFunc(jobs, func(a, b Outcome) int { return int(a.Submit - b.Submit) })
		start := time.Unix(0, 0)
		core, sizes := fairness.NewFluid(start), make([]size, apps)
		for _, j := range jobs {
			core.Advance(start.Add(time.Duration(j.Submit*1e9)), gpus)
			sizes[j.App].grow(&j)
			id := strconv.Itoa(j.App)
			if _, ok := core.State(id); ok {
				core.Revise(id, j.Work, sizes[j.App].par())
			} else {
				core.Add(id, id, 1, j.Work, sizes[j.App].par())
			}
		}
		core.Advance(core.Now(), gpus)
		ends := core.Project()
		for app, ref := range refs {
			want := ends[strconv.Itoa(app)].Sub(start).Seconds()
			for _, j := range jobs {
				if j.App == app { // which the core sees to beside it
					want = max(want, j.Submit+j.Runtime)
				}
			}
			if math.Abs(want-ref) > 1e-5 {
				t.Errorf("app %d ends at %.9f, in the core's schedule at %.9f", app, ref, want)
			}
		}
	})
}

func TestFluidOrder(t *testing.T) {
	jobs := []Outcome{
		{App: 0, Submit: 0, Work: 40, GPUs: 4, Runtime: 10},
		{App: 1, Submit: 0, Work: 10, GPUs: 1, Runtime: 10}, // narrow: keeps its GPU
		{App: 2, Submit: 4, Work: 6, GPUs: 4, Runtime: 1.5},
		{App: 0, Submit: 100, Work: 8, GPUs: 4, Runtime: 2}, // wakes app 0
	}
	// Until 4: 3, 1. From 4: 1.5, 1, 1.5 until 8 (app 2). Then 3, 1 until 10.
	// App 0 has 40-12-6-6 = 16 left at 10, and 4 GPUs.
	want := []float64{102, 10, 8}
	if got := References(jobs, 3, 4); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	slices.Reverse(jobs)
	if got := References(jobs, 3, 4); !slices.Equal(got, want) {
		t.Errorf("in another order %v, want %v", got, want)
	}
	if got := References(jobs[:1], 2, 4); got[1] != 0 {
		t.Errorf("an app without jobs ends at %v", got[1])
	}
}

// The largest of the traces, or one like it in which the load never ends.
func TestFluidIsFast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var jobs []Outcome
	var at float64
	for i := range 82_248 {
		at += rng.ExpFloat64() * 60
		j := Outcome{App: i, Submit: at, GPUs: float64(int(1) << rng.IntN(8)), Runtime: rng.ExpFloat64() * 6000}
		j.Work = j.GPUs * j.Runtime
		jobs = append(jobs, j)
	}
	start := time.Now()
	refs := References(jobs, len(jobs), 2496)
	took := time.Since(start)
	for i, ref := range refs {
		if j := jobs[i]; ref < j.Submit+j.Runtime*(1-1e-9)-1e-6 {
			t.Fatalf("job %d ends at %f, too early", i, ref)
		}
	}
	t.Logf("%d jobs in %v", len(jobs), took)
	if took > 5*time.Second {
		t.Errorf("takes %v", took)
	}
}
