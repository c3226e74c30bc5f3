// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// References returns when each app ends, in seconds, in the fluid max-min fair
// schedule of these arrivals: apps of equal weight, true work, S = 1, GPUs
// divided anew at every instant. It reads no End, so it is the same for every
// policy. An app's width is that of its jobs that have arrived, those that have
// ended included: their GPUs, and no more than would end it before the longest
// of them (Runtime). A later job adds its work, and wakes an app that had
// finished, but no app ends before its last job could, started on arrival. Apps
// without jobs end at 0.
//
// It is fairness.Fluid with an entity per app, exact however many apps are
// live, and in time n (log n + widths that are live at once): apps of equal width
// always have equal rates, so each width keeps one clock of what an app of it was
// served, and its apps by the reading at which they end.
func References(jobs []Outcome, apps, gpus int) []float64 {
	f := fluid{gpus: float64(gpus), byCap: map[float64]*band{}}
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(jobs[i].Submit, jobs[k].Submit) })
	all := make([]floating, apps)
	for n, i := range order {
		j := &jobs[i]
		f.play(j.Submit)
		all[j.App].grow(j)
		f.wake(&all[j.App], j.Work)
		if n+1 == len(order) || jobs[order[n+1]].Submit > j.Submit {
			f.fill()
		}
	}
	f.play(math.Inf(1))
	refs := make([]float64, apps)
	for i := range all {
		refs[i] = all[i].end
	}
	for i := range jobs {
		refs[jobs[i].App] = max(refs[jobs[i].App], jobs[i].Submit+jobs[i].Runtime)
	}
	return refs
}

// floating is an app in the fluid schedule.
type floating struct {
	size
	at   float64 // reading of its band's clock at which it ends
	end  float64 // s, of a run that is over
	band *band   // nil unless it has work left
	pos  int     // in the band
}

// band is the unfinished apps of one width, a heap: who ends first is on top.
type band struct {
	cap   float64 // GPUs
	rate  float64 // GPUs, of each app
	clock float64 // GPU-s that an app was served since the band was empty
	apps  []*floating
}

func (b *band) Len() int           { return len(b.apps) }
func (b *band) Less(i, k int) bool { return b.apps[i].at < b.apps[k].at }
func (b *band) Swap(i, k int) {
	b.apps[i], b.apps[k] = b.apps[k], b.apps[i]
	b.apps[i].pos, b.apps[k].pos = i, k
}
func (b *band) Push(x any) {
	a := x.(*floating)
	a.pos = len(b.apps)
	b.apps = append(b.apps, a)
}
func (b *band) Pop() any {
	a := b.apps[len(b.apps)-1]
	b.apps = b.apps[:len(b.apps)-1]
	return a
}

type fluid struct {
	now, gpus float64
	bands     []*band // that have apps, narrowest first
	byCap     map[float64]*band
}

// wake adds work to an app that may have grown. Rates are stale until fill.
func (f *fluid) wake(a *floating, work float64) {
	a.end = f.now
	if a.band != nil {
		work += max(a.at-a.band.clock, 0)
		heap.Remove(a.band, a.pos)
		f.tidy(a.band)
		a.band = nil
	}
	width := a.par()
	if work <= 0 || width <= 0 {
		return
	}
	b := f.byCap[width]
	if b == nil {
		b = &band{cap: width}
		f.byCap[width] = b
		i, _ := slices.BinarySearchFunc(f.bands, width, func(b *band, w float64) int { return cmp.Compare(b.cap, w) })
		f.bands = slices.Insert(f.bands, i, b)
	}
	a.band, a.at = b, b.clock+work
	heap.Push(b, a)
}

// tidy forgets a band that is empty.
func (f *fluid) tidy(b *band) {
	if len(b.apps) == 0 {
		delete(f.byCap, b.cap)
		f.bands = slices.DeleteFunc(f.bands, func(o *band) bool { return o == b })
	}
}

// fill divides the GPUs: the narrow get all they can use, the others the same each.
func (f *fluid) fill() {
	left, apps := f.gpus, 0
	for _, b := range f.bands {
		apps += len(b.apps)
	}
	for _, b := range f.bands {
		b.rate = min(b.cap, left/float64(apps))
		left = max(left-b.rate*float64(len(b.apps)), 0)
		apps -= len(b.apps)
	}
}

// play runs the schedule until a time, in seconds.
func (f *fluid) play(to float64) {
	for len(f.bands) > 0 {
		first, step := f.bands[0], math.Inf(1)
		for _, b := range f.bands {
			if t := max(b.apps[0].at-b.clock, 0) / b.rate; t < step {
				first, step = b, t
			}
		}
		if f.now+step > to || math.IsInf(step, 1) {
			for _, b := range f.bands {
				b.clock += b.rate * (to - f.now)
			}
			break
		}
		f.now += step
		for _, b := range f.bands {
			b.clock += b.rate * step
		}
		f.end(first)
		f.fill()
	}
	f.now = max(f.now, to)
}

// end takes out the app that ends first in the band, and all that end with it.
func (f *fluid) end(b *band) {
	b.clock = max(b.clock, b.apps[0].at)
	for len(b.apps) > 0 && b.apps[0].at <= b.clock {
		a := heap.Pop(b).(*floating)
		a.band, a.end = nil, f.now
	}
	f.tidy(b)
}
