// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Fluid is the virtual schedule that finish times are measured against: the
// same apps arriving at the same moments on a cluster whose GPUs are divided
// evenly, by weight, at every instant and without loss. An app's finish there
// is its reference, T_id of the paper made independent of the policy under
// test; no app that ends by its reference has lost anything by sharing.
//
// Shares have two levels: entities (users, accounts, or each app alone) get
// GPUs by weight, and the apps of one entity split what it gets; neither ever
// gets more than it can use, and what one leaves goes to the others (max-min,
// water-filling).
//
// The guarantee. Call an app ahead if it has less work left in reality than in
// its virtual run, and wide if it can always use all GPUs. No app ends after its
// reference if at every instant (1) each app that is not ahead is served at least
// at its virtual rate (Rates), except that (2) the virtual rates of one entity's
// wide apps may go, all of them, to the first of these in order of virtual finish
// that has work left (Fair Sojourn: Friedman and Henderson 2003). Virtual rates
// sum to at most the GPUs there are, so this can always be done; what is left over
// may go to anybody.
//
// Proof. (1) On arrival the work left is the same in both; while it is, the real
// one falls at least as fast, so it is never the larger, and is 0 where the virtual
// one is. (2) Wide apps of an entity have equal virtual rates, so arrivals do not
// change their order by virtual work left. Sum the work left over the first k of
// them: while the real sum is not 0 it falls at the rate of all, the virtual one no
// faster, and an arrival adds the same to both; so the real sum is never the
// larger, and is 0 where the virtual one is. Conditions: work known, GPUs divisible
// and moved at no cost or loss of speed, the same GPUs in both. The reference meant
// is the final one: arrivals move it. Rule (1) alone hands out the virtual schedule
// itself; (2) is what shortens the mean. Order of virtual finish alone is not
// enough with narrow apps, nor across entities (guarantee_test.go).
//
// Fluid is a value of the core: it reads no clock. Not safe for concurrent use.
type Fluid struct {
	now     time.Time
	gpus    float64
	apps    map[string]*fluidApp
	list    []*fluidApp        // the same, as they came
	changed bool               // since Project was asked
	rates   map[string]float64 // nil: to be found anew
}

type fluidApp struct {
	id     string
	entity string
	weight float64   // of the entity
	left   float64   // GPU-seconds of virtual work left
	par    float64   // most GPUs the app can use at once
	finish time.Time // of a virtual run that is over
	rate   float64   // GPUs at the last fill
}

// FluidApp is what is kept of an app in the virtual schedule, for the ledger.
type FluidApp struct {
	Entity string    `json:"entity"`
	Weight float64   `json:"weight"`
	Left   float64   `json:"left_gpu_s"`
	Par    float64   `json:"par_gpus"`
	Finish time.Time `json:"finish"`
	Rate   float64   `json:"rate_gpus"` // at At
	At     time.Time `json:"at"`        // when all this was so
}

// NewFluid starts an empty schedule at now.
func NewFluid(now time.Time) *Fluid {
	return &Fluid{now: now, apps: map[string]*fluidApp{}}
}

// Restore puts an app back as it was kept. What it did at its rate between then
// and the schedule's time is made up for.
func (f *Fluid) Restore(app string, a FluidApp) {
	r := &fluidApp{id: app, entity: a.Entity, weight: a.Weight, left: a.Left, par: a.Par, finish: a.Finish}
	if since := f.now.Sub(a.At).Seconds(); !a.At.IsZero() && since > 0 && a.Rate > 0 && r.left > 0 {
		if r.left -= a.Rate * since; r.left <= 0 {
			r.left, r.finish = 0, a.At.Add(seconds(a.Left/a.Rate))
		}
	}
	f.add(r)
}

func (f *Fluid) add(a *fluidApp) {
	f.apps[a.id], f.list = a, append(f.list, a)
	f.changed, f.rates = true, nil
}

// State returns what Restore takes.
func (f *Fluid) State(app string) (FluidApp, bool) {
	a, ok := f.apps[app]
	if !ok {
		return FluidApp{}, false
	}
	return FluidApp{Entity: a.entity, Weight: a.weight, Left: a.left, Par: a.par, Finish: a.finish, Rate: a.rate, At: f.now}, true
}

// Now is the time up to which the schedule has been played.
func (f *Fluid) Now() time.Time { return f.now }

// Add brings an app with work GPU-seconds and at most par GPUs at once. An app
// already there keeps its history.
func (f *Fluid) Add(app, entity string, weight, work, par float64) {
	if _, ok := f.apps[app]; !ok {
		f.add(&fluidApp{id: app, entity: entity, weight: weight, left: max(work, 0), par: max(par, 0)})
	}
}

// Revise changes an app's total work by delta GPU-seconds (jobs came or an
// estimate moved) and its width. An app that had finished runs again if work
// was added.
func (f *Fluid) Revise(app string, delta, par float64) {
	a := f.apps[app]
	if a == nil {
		return
	}
	if par > 0 && par != a.par {
		a.par, f.changed, f.rates = par, true, nil
	}
	if a.left == 0 && !a.finish.IsZero() {
		if delta <= 0 {
			return
		}
		a.finish = time.Time{}
	}
	if delta != 0 {
		a.left, f.changed, f.rates = max(a.left+delta, 0), true, nil
	}
}

// Remove forgets an app, as the owner does once the real app has ended and its
// virtual run too. An app that ended early in reality keeps running virtually
// until its owner removes it; removing it at once hands its share to the rest.
func (f *Fluid) Remove(app string) {
	delete(f.apps, app)
	f.list = slices.DeleteFunc(f.list, func(a *fluidApp) bool { return a.id == app })
	f.changed, f.rates = true, nil
}

// Advance plays the schedule until now on gpus GPUs.
func (f *Fluid) Advance(now time.Time, gpus int) {
	if f.gpus != float64(gpus) {
		f.gpus, f.changed, f.rates = float64(gpus), true, nil
	}
	if now.After(f.now) {
		play(f.list, f.gpus, f.now, now)
		f.now, f.rates = now, nil
	}
}

// Project returns when each app would finish if nothing more arrived: its
// reference. Apps that can never finish (no GPUs) are left out. It returns nil
// if nothing has changed since it was last asked: the references stand.
func (f *Fluid) Project() map[string]time.Time {
	if !f.changed {
		return nil
	}
	f.changed = false
	copies, ghosts := make([]fluidApp, len(f.list)), make([]*fluidApp, len(f.list))
	for i, a := range f.list {
		copies[i] = *a
		ghosts[i] = &copies[i]
	}
	play(ghosts, f.gpus, f.now, time.Time{})
	out := make(map[string]time.Time, len(ghosts))
	for _, a := range ghosts {
		if !a.finish.IsZero() {
			out[a.id] = a.finish
		}
	}
	return out
}

// Rates returns each unfinished app's GPUs in the fluid schedule right now. The
// map is the schedule's.
func (f *Fluid) Rates() map[string]float64 {
	if f.rates != nil {
		return f.rates
	}
	if enough(f.list, f.gpus) {
		for _, a := range f.list {
			a.rate = a.par
		}
	} else {
		newFlow(f.list).fill(f.gpus)
	}
	f.rates = make(map[string]float64, len(f.list))
	for _, a := range f.list {
		if a.left > 0 {
			f.rates[a.id] = a.rate
		}
	}
	return f.rates
}

// eventsMost bounds how often rates are recomputed in one play. With more apps
// than this, several finish between two fills and what they leave is handed
// out at the next one, at most one part in eventsMost late.
const eventsMost = 256

// flow is the unfinished apps of a schedule, by entity; inside an entity the
// narrowest first, the order in which water-filling serves them.
type flow struct {
	groups [][]*fluidApp
	weight []float64
	want   []float64
	times  []float64
	each   int // how many apps end between two fills
}

func newFlow(apps []*fluidApp) *flow {
	all := make([]*fluidApp, 0, len(apps))
	for _, a := range apps {
		if a.left > 0 && a.par > 0 {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(x, y *fluidApp) int {
		return cmp.Or(cmp.Compare(x.entity, y.entity), cmp.Compare(x.par, y.par), cmp.Compare(x.id, y.id))
	})
	f := &flow{each: max(1, len(all)/eventsMost)}
	for i, a := range all {
		if i == 0 || all[i-1].entity != a.entity {
			f.groups = append(f.groups, nil)
			f.weight = append(f.weight, 0)
		}
		g := len(f.groups) - 1
		f.groups[g] = append(f.groups[g], a)
		f.weight[g] = max(f.weight[g], a.weight)
	}
	f.want = make([]float64, len(f.groups))
	return f
}

// fill water-fills the GPUs over entities by weight, then inside each over its
// apps, and reports whether anybody got any.
func (f *flow) fill(gpus float64) bool {
	for g, apps := range f.groups {
		f.want[g] = 0
		for _, a := range apps {
			f.want[g] += a.par
		}
	}
	some := false
	for g, got := range WaterFill(gpus, f.want, f.weight) {
		for i, a := range f.groups[g] {
			a.rate = min(a.par, got/float64(len(f.groups[g])-i))
			got -= a.rate
			some = some || a.rate > 0
		}
	}
	return some
}

// next is the time until enough apps have ended for rates to be filled anew.
func (f *flow) next() float64 {
	f.times = f.times[:0]
	for _, apps := range f.groups {
		for _, a := range apps {
			if a.rate > 0 {
				f.times = append(f.times, a.left/a.rate)
			}
		}
	}
	if f.each == 1 {
		return slices.Min(f.times)
	}
	slices.Sort(f.times)
	return f.times[min(f.each, len(f.times))-1]
}

// advance moves all apps by step seconds and drops those that end.
func (f *flow) advance(now time.Time, step float64) {
	for g, apps := range f.groups {
		f.groups[g] = slices.DeleteFunc(apps, func(a *fluidApp) bool {
			if a.rate <= 0 {
				return false
			}
			if need := a.left / a.rate; need <= step*(1+1e-12)+1e-9 {
				a.left, a.finish = 0, now.Add(seconds(min(need, step)))
				return true
			}
			a.left -= a.rate * step
			return false
		})
	}
}

// play moves the apps from one time to another (zero: until all are done).
func play(apps []*fluidApp, gpus float64, from, to time.Time) {
	for _, a := range apps {
		if a.left <= 0 && a.finish.IsZero() {
			a.finish = from
		}
	}
	if enough(apps, gpus) {
		for _, a := range apps {
			a.run(from, to)
		}
		return
	}
	f := newFlow(apps)
	for now := from; f.fill(gpus); {
		step := f.next()
		if !to.IsZero() {
			step = min(step, to.Sub(now).Seconds())
		}
		f.advance(now, step)
		now = now.Add(seconds(step))
		if !to.IsZero() && !now.Before(to) {
			return
		}
	}
}

// enough says whether no app needs to share: each runs at its full width.
func enough(apps []*fluidApp, gpus float64) bool {
	var want float64
	for _, a := range apps {
		if a.left > 0 {
			want += a.par
		}
	}
	return want <= gpus
}

// run moves an app that does not share from one time to another (zero: its end).
func (a *fluidApp) run(from, to time.Time) {
	if a.left <= 0 || a.par <= 0 {
		return
	}
	a.rate = a.par
	end := from.Add(seconds(a.left / a.par))
	if to.IsZero() || !end.After(to) {
		a.left, a.finish = 0, end
	} else {
		a.left -= a.par * to.Sub(from).Seconds()
	}
}

// WaterFill divides total by weight so that nobody gets more than it wants and
// what one leaves goes to the others in proportion (weighted max-min).
func WaterFill(total float64, want, weight []float64) []float64 {
	got := make([]float64, len(want))
	order := make([]int, len(want))
	var sum float64
	for i := range want {
		order[i] = i
		sum += weight[i]
	}
	sort.SliceStable(order, func(a, b int) bool {
		i, j := order[a], order[b]
		return want[i]*weight[j] < want[j]*weight[i]
	})
	for _, i := range order {
		if sum <= 0 {
			break
		}
		got[i] = min(want[i], total*weight[i]/sum)
		total -= got[i]
		sum -= weight[i]
	}
	return got
}

func seconds(s float64) time.Duration {
	const most = float64(100 * 365 * 24 * time.Hour)
	return time.Duration(min(s*float64(time.Second), most))
}
