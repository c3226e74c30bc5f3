// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What was found for Shockwave's own trace with a throwaway program.
func TestBoundOfShockwave(t *testing.T) {
	traces := os.Getenv("THEMIS_TRACES")
	if traces == "" {
		t.Skip("THEMIS_TRACES is not set")
	}
	data, err := os.ReadFile(filepath.Join(traces, "shockwave", "120_multigpu_dynamic.trace"))
	if err != nil {
		t.Fatal(err)
	}
	var jobs []Outcome
	var work float64
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		field := strings.Split(line, "\t")
		number := func(n int) float64 {
			v, err := strconv.ParseFloat(strings.TrimSpace(field[n-1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		j := Outcome{App: i, Submit: number(12), GPUs: number(7), Runtime: number(11)}
		j.Work = j.GPUs * j.Runtime
		work += j.Work / 3600
		jobs = append(jobs, j)
	}
	if len(jobs) != 120 || math.Abs(work-197.6) > .05 {
		t.Fatalf("%d jobs of %.2f GPU-hours", len(jobs), work)
	}
	start := time.Now()
	b := Bound(jobs, References(jobs, 120, 32), 32, []float64{1, 1.05, 1.1, 1.2})
	t.Logf("%+v in %v", b, time.Since(start))
	want := []MakespanBound{{1, 8.80}, {1.05, 7.63}, {1.1, 7.09}, {1.2, 6.45}, {0, 6.36}}
	if len(b.Makespans) != len(want) {
		t.Fatalf("%+v", b)
	}
	for i, w := range want {
		if got := b.Makespans[i]; got.Rho != w.Rho || math.Abs(got.Hours-w.Hours) > .005 {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
}

// tiny is an instance in whole seconds, GPUs and deadlines. Its refs are made up.
func tiny(t *rapid.T) (jobs []Outcome, refs []float64, gpus int) {
	gpus = rapid.IntRange(1, 3).Draw(t, "cluster")
	for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
		j := Outcome{App: i, Submit: float64(rapid.IntRange(0, 4).Draw(t, "submit")),
			GPUs: float64(rapid.IntRange(1, 3).Draw(t, "gpus")), Work: float64(rapid.IntRange(1, 5).Draw(t, "work"))}
		jobs = append(jobs, j)
		least := math.Ceil(j.Work / min(j.GPUs, float64(gpus)))
		refs = append(refs, j.Submit+least+float64(rapid.IntRange(0, 4).Draw(t, "room")))
	}
	return jobs, refs, gpus
}

// best is the least makespan in whole seconds, by trying all schedules that use
// whole GPUs for whole seconds; with whole windows no others are better. 0: none.
func best(jobs []Outcome, deadlines []float64, gpus int) float64 {
	type state [4]int8 // work left
	var first state
	for i, j := range jobs {
		first[i] = int8(j.Work)
	}
	now := map[state]bool{first: true}
	for s := 0.; s < 100 && len(now) > 0; s++ {
		if now[state{}] {
			return s
		}
		next := map[state]bool{}
		var try func(left state, i, free int)
		try = func(left state, i, free int) {
			if i == len(jobs) {
				next[left] = true
				return
			}
			if s < jobs[i].Submit || s >= deadlines[i] {
				try(left, i+1, free)
				return
			}
			most := min(int(jobs[i].GPUs), int(left[i]), free)
			for n := 0; n <= most; n++ {
				l := left
				l[i] -= int8(n)
				try(l, i+1, free-n)
			}
		}
		for left := range now {
			try(left, 0, gpus)
		}
		now = next
	}
	return 0
}

func TestBoundIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, refs, gpus := tiny(t)
		b := Bound(jobs, refs, gpus, []float64{1, 2})
		for _, rho := range []float64{1, 2, 0} {
			var deadlines []float64
			for i, j := range jobs {
				deadlines = append(deadlines, j.Submit+rho*(refs[i]-j.Submit))
				if rho == 0 {
					deadlines[i] = math.Inf(1)
				}
			}
			want, got := best(jobs, deadlines, gpus), 0.
			for _, m := range b.Makespans {
				if m.Rho == rho {
					got = math.Ceil(m.Hours * 3600) // a whole makespan gives whole windows
				}
			}
			if got != want {
				t.Errorf("rho %v: makespan %v, by trial %v", rho, got, want)
			}
			if possible := want > 0; rho > 0 && possible != (b.RhoMax <= rho) {
				t.Errorf("rho at least %v, but %v is possible: %v", b.RhoMax, rho, possible)
			}
		}
	})
}

// No schedule beats the bounds: here ones that give out GPUs at random.
func TestBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t, 8, 1)
		apps, gpus := appsOf(jobs), 12
		refs := References(jobs, apps, gpus)
		left := make([]float64, len(jobs))
		for i, j := range jobs {
			left[i] = j.Work
		}
		var worst, makespan float64
		const step = 5
		for now, ended := 0., 0; ended < len(jobs); now += step {
			free := float64(gpus)
			from := rapid.IntRange(0, len(jobs)-1).Draw(t, "first")
			for k := range jobs {
				i := (from + k) % len(jobs)
				j := &jobs[i]
				if now < j.Submit || left[i] <= 0 {
					continue
				}
				rate := min(j.GPUs, free)
				if free -= rate; rate*step >= left[i] {
					j.End = now + left[i]/rate
					ended++
				}
				left[i] -= rate * step
			}
		}
		for i, j := range jobs {
			worst, makespan = max(worst, (j.End-j.Submit)/(refs[i]-j.Submit)), max(makespan, j.End)
		}
		b := Bound(jobs, refs, gpus, []float64{worst, worst + 1})
		if b.RhoMax > worst {
			t.Errorf("rho at least %v, is %v", b.RhoMax, worst)
		}
		if len(b.Makespans) != 3 {
			t.Fatalf("%+v, with rho %v", b, worst)
		}
		for _, m := range b.Makespans {
			if m.Hours*3600 > makespan {
				t.Errorf("%+v, is %v h", m, makespan/3600)
			}
		}
	})
}

// The fluid schedule has rho 1. A laxer rho never needs more time.
func TestBoundOfFluid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := draw(t, 20, 1)
		refs := References(jobs, appsOf(jobs), 10)
		var makespan float64
		for _, ref := range refs {
			makespan = max(makespan, ref)
		}
		b := Bound(jobs, refs, 10, []float64{1, 1.05, 1.2, 2})
		if b.RhoMax > 1 || len(b.Makespans) != 5 {
			t.Fatalf("%+v", b)
		}
		for i, m := range b.Makespans {
			if m.Hours*3600 > makespan || i > 0 && m.Hours > b.Makespans[i-1].Hours*(1+1e-6) {
				t.Errorf("%+v, fluid %v h", b.Makespans, makespan/3600)
			}
		}
	})
}

// Where the references are lax, the least rho is what sets of jobs leave possible.
func TestBoundOfRho(t *testing.T) {
	jobs := []Outcome{{App: 0, Work: 3, GPUs: 1}, {App: 1, Work: 4, GPUs: 2}, {App: 2, Submit: 100, Work: 1, GPUs: 2}}
	// The first two need 7 GPU-s by 10 rho, the first alone 3 s, the last .5 s of 50.
	b := Bound(jobs, []float64{10, 10, 150}, 2, []float64{.3, .4})
	if math.Abs(b.RhoMax-.35) > 1e-8 || len(b.Makespans) != 2 || math.Abs(b.Makespans[0].Hours*3600-100.5) > 1e-6 {
		t.Errorf("%+v", b)
	}
}

func TestBoundUnproven(t *testing.T) {
	jobs := []Outcome{{Submit: 0, Work: 1, GPUs: 1, Runtime: 1}, {Submit: 1, Work: 1, GPUs: 1, Runtime: 1}}
	if b := Bound(jobs, []float64{2}, 1, nil); b != nil {
		t.Errorf("an app of two jobs has %+v", b)
	}
	jobs[1].App = 1
	if b := Bound(jobs, []float64{1, 2}, 1, []float64{.5}); b == nil || len(b.Makespans) != 1 || b.Makespans[0].Rho != 0 {
		t.Errorf("rho .5 has %+v", b)
	}
	var many []Outcome
	var refs []float64
	for i := range 2000 {
		many = append(many, Outcome{App: i, Submit: float64(i), Work: 5000, GPUs: 1, Runtime: 5000})
		refs = append(refs, float64(i+100_000))
	}
	if b := Bound(many, refs, 10, nil); b != nil {
		t.Errorf("too many have %+v", b)
	}
}
