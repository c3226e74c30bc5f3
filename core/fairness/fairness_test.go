// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
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

func TestSlack(t *testing.T) {
	o := Outlook{Now: start.Add(time.Hour), Submit: start, Reference: start.Add(4 * time.Hour), Work: 8 * 3600, Longest: 30 * time.Minute}
	for _, c := range []struct {
		name string
		edit func(*Outlook)
		par  float64
		want time.Duration
	}{
		{"8 GPU-hours on 8 GPUs, 3 hours to go", func(*Outlook) {}, 8, 2 * time.Hour},
		{"the longest job takes more", func(o *Outlook) { o.Longest = 2 * time.Hour }, 8, time.Hour},
		{"on 2 GPUs it is an hour late already", func(*Outlook) {}, 2, -time.Hour},
		{"nothing left to do", func(o *Outlook) { o.Work, o.Longest = 0, 0 }, 0, 3 * time.Hour},
		{"no GPU will do", func(*Outlook) {}, 0, 3*time.Hour - 8000*time.Hour},
	} {
		x := o
		c.edit(&x)
		if got := x.Slack(c.par); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if o.Reference = (time.Time{}); o.Slack(8) >= 0 {
		t.Error("an app without a reference has slack")
	}
}

// TestSlackIsExact: after waiting for its slack an app that runs at full width
// ends at its reference, not a moment sooner or later.
func TestSlackIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		par := rapid.Float64Range(1, 64).Draw(t, "par")
		o := Outlook{Now: start, Reference: start.Add(seconds(rapid.Float64Range(0, 1e5).Draw(t, "ref"))),
			Work: rapid.Float64Range(1, 1e6).Draw(t, "work"), Longest: seconds(rapid.Float64Range(0, 1e5).Draw(t, "longest")),
			FairRate: par, Lease: 1000 * time.Hour}
		o.Now = o.Now.Add(o.Slack(par))
		if late := o.Now.Add(o.Left(par)).Sub(o.Reference).Abs(); late > time.Microsecond {
			t.Fatalf("it misses its reference by %s", late)
		}
	})
}

func TestPaperByHand(t *testing.T) {
	var s Size
	s.Add(4, time.Hour)
	s.Add(2, 2*time.Hour) // 8 GPU-hours in all, on 6 GPUs at once
	for _, c := range []struct {
		gpus       int
		contention float64
		want       time.Duration
	}{
		{2, 1, 4 * time.Hour}, // W/R
		{2, 2.5, 10 * time.Hour},
		{64, 1, 2 * time.Hour}, // the longest job
		{64, 3, 6 * time.Hour},
		{64, 0, 2 * time.Hour}, // one app at least: itself
	} {
		if got := s.Ideal(c.gpus, c.contention); got != c.want {
			t.Errorf("T_id on %d GPUs among %g apps is %s, want %s", c.gpus, c.contention, got, c.want)
		}
	}
	if got, want := (Size{Work: 8 * 3600, Par: 2}).Alone(64), 4*time.Hour; got != want {
		t.Errorf("an app that can use 2 GPUs needs %s alone, want %s", got, want)
	}
	if got := (Size{}).Ideal(0, 5); got != 0 {
		t.Errorf("an app of no work has T_id %s", got)
	}
}
