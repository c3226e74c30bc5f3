// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tried is an app under a real schedule, beside its virtual run.
type tried struct {
	id, entity        string
	weight, work, par float64
	arrive            float64 // seconds
	left              float64 // in reality
	virtual           float64 // left in the virtual run
	rate              float64 // virtual
	ref               time.Time
	end               time.Time // real
}

// policy gives each app that has arrived GPUs for a step of so many seconds. The
// apps come in order of virtual finish; those with nothing left get nothing.
type policy func(apps []*tried, gpus, step float64) []float64

// mostGPUs is what no cluster here is larger than; wide apps can use that many.
const mostGPUs = 16

// guarded is the rule in the doc comment of Fluid. An app that would be caught up
// with during the step counts as not ahead. What is left over goes to all in order
// of virtual finish.
func guarded(apps []*tried, gpus, step float64) []float64 {
	got := make([]float64, len(apps))
	pools := map[string]float64{} // virtual rates of an entity's wide apps
	for i, a := range apps {
		if a.par >= mostGPUs {
			pools[a.entity] += a.rate
		} else if a.left > max(a.virtual-a.rate*step, 0) {
			got[i] = a.rate
			gpus -= a.rate
		}
	}
	for i, a := range apps {
		if pool := pools[a.entity]; a.par >= mostGPUs && a.left > 0 {
			got[i] = pool
			gpus -= pool
			pools[a.entity] = 0
		}
	}
	for i, a := range apps {
		if a.left > 0 {
			more := min(a.par-got[i], gpus)
			got[i] += more
			gpus -= more
		}
	}
	return got
}

// plain serves in order of virtual finish, each app at its full width.
func plain(apps []*tried, gpus, _ float64) []float64 {
	rates := make([]float64, len(apps))
	for i, a := range apps {
		if a.left > 0 {
			rates[i] = min(a.par, gpus)
			gpus -= rates[i]
		}
	}
	return rates
}

// dust is how many GPU-seconds rounding to nanoseconds may leave of an app.
const dust = 1e-6

// simulate runs the apps under the policy on gpus(t) GPUs until all have ended,
// in reality and virtually. No step is longer than half a second, and within none
// does anybody arrive or end, so that the virtual rates hold for all of it.
func simulate(fail func(string, ...any), apps []*tried, gpus func(s float64) int, serve policy) {
	f := NewFluid(start)
	refs := map[string]time.Time{}
	for steps := 0; ; steps++ {
		if steps > 1e5 {
			fail("no end")
		}
		now := f.Now().Sub(start).Seconds()
		r := float64(gpus(now))
		f.Advance(f.Now(), int(r))
		step, going := 0.5, false
		var here []*tried // who has arrived
		for _, a := range apps {
			if a.arrive > now {
				step, going = min(step, a.arrive-now), true
				continue
			}
			f.Add(a.id, a.entity, a.weight, a.work, a.par)
			here = append(here, a)
			going = going || a.left > 0
		}
		maps.Copy(refs, f.Project())
		rates := f.Rates()
		if !going && len(rates) == 0 {
			break
		}
		for id, rate := range rates {
			v, _ := f.State(id)
			step = min(step, v.Left/rate)
		}
		for _, a := range here {
			v, _ := f.State(a.id)
			a.rate, a.virtual, a.ref = rates[a.id], v.Left, refs[a.id]
		}
		slices.SortStableFunc(here, func(x, y *tried) int { return cmp.Or(x.ref.Compare(y.ref), cmp.Compare(x.id, y.id)) })
		got := serve(here, r, step)
		for i, a := range here {
			if r -= got[i]; r < -1e-9 || got[i] > a.par+1e-9 {
				fail("app %s gets %g GPUs, more than it can use or %g more than there are", a.id, got[i], -r)
			}
			if got[i] > 0 {
				step = min(step, a.left/got[i])
			}
		}
		wall := seconds(step) + 1 // up to the clock's unit, a nanosecond
		f.Advance(f.Now().Add(wall), gpus(now))
		for i, a := range here {
			if a.left -= got[i] * wall.Seconds(); a.left <= dust {
				a.left = 0
				if a.end.IsZero() {
					a.end = f.Now()
				}
			}
		}
	}
	for _, a := range apps {
		v, _ := f.State(a.id)
		a.ref = v.Finish
	}
}

// TestNoAppEndsAfterItsReference is the guarantee in the doc comment of Fluid:
// random arrivals, widths, weights, entities and nodes that come and go.
func TestNoAppEndsAfterItsReference(t *testing.T) {
	const tolerance = time.Microsecond // rounding only: the steps themselves are exact
	var worst time.Duration
	var took, ideal float64
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, mostGPUs), 1, 4).Draw(t, "GPUs, changing every 20 s")
		gpus := func(s float64) int { return sizes[min(int(s/20), len(sizes)-1)] }
		var apps []*tried
		weights := rapid.SliceOfN(rapid.Float64Range(.2, 5), 3, 3).Draw(t, "weights")
		for i := range rapid.IntRange(1, 10).Draw(t, "apps") {
			n := rapid.IntRange(0, 2).Draw(t, "user")
			a := &tried{id: fmt.Sprint(i), entity: fmt.Sprint("u", n), weight: weights[n],
				work: rapid.Float64Range(.1, 200).Draw(t, "work"), par: mostGPUs,
				arrive: rapid.Float64Range(0, 60).Draw(t, "arrive")}
			if a.left = a.work; rapid.Bool().Draw(t, "narrow") {
				a.par = rapid.Float64Range(.5, 12).Draw(t, "par")
			}
			apps = append(apps, a)
		}
		simulate(t.Fatalf, apps, gpus, guarded)
		var sumEnd, sumRef float64
		for _, a := range apps {
			late := a.end.Sub(a.ref)
			if worst = max(worst, late); late > tolerance {
				t.Fatalf("app %s ends %s after its reference", a.id, late)
			}
			sumEnd += a.end.Sub(start).Seconds() - a.arrive
			sumRef += a.ref.Sub(start).Seconds() - a.arrive
		}
		if sumEnd > sumRef+1e-3 {
			t.Fatalf("the mean time is %g s, on fair shares %g s", sumEnd/float64(len(apps)), sumRef/float64(len(apps)))
		}
		took, ideal = took+sumEnd, ideal+sumRef
	})
	t.Logf("latest end: %s after its reference; mean time %.2f of that on fair shares", worst, took/ideal)
}

// TestOrderAloneIsNotEnough shows why the guarantee has two rules: strict order of
// virtual finish, each app at its full width, breaks it.
func TestOrderAloneIsNotEnough(t *testing.T) {
	for _, c := range []struct {
		name string
		gpus int
		apps []tried
		late map[string]float64 // by how many seconds, in order alone
	}{
		// B would end a moment before A and can use both GPUs, A only one: A waits
		// for 4.995 s that its one GPU cannot make up for.
		{"a narrow app", 2, []tried{{id: "A", entity: "a", work: 10, par: 1}, {id: "B", entity: "b", work: 9.99, par: 2}},
			map[string]float64{"A": 4.995}},
		// A1 is served before B, on B's share too. When it is done A2 of the same
		// user comes: B was to get that back from A1's share, which is now A2's.
		{"another user's arrival", mostGPUs, []tried{{id: "A1", entity: "a", work: 160, par: mostGPUs}, {id: "B", entity: "b", work: 168, par: mostGPUs},
			{id: "A2", entity: "a", work: 16, par: mostGPUs, arrive: 10}},
			map[string]float64{"B": .5}},
	} {
		for rule, serve := range map[string]policy{"in order alone": plain, "guarded": guarded} {
			var apps []*tried
			for _, a := range c.apps {
				a.weight, a.left = 1, a.work
				apps = append(apps, &a)
			}
			simulate(t.Fatalf, apps, func(float64) int { return c.gpus }, serve)
			for _, a := range apps {
				late := a.end.Sub(a.ref)
				want := c.late[a.id]
				if rule == "guarded" {
					want = 0
				}
				if late > seconds(want)+time.Microsecond || want > 0 && late < seconds(want)-time.Microsecond {
					t.Errorf("%s, %s: %s ends %s after its reference, want %g s", c.name, rule, a.id, late, want)
				}
			}
		}
	}
}
