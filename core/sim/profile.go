// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"
)

// profile is the number of free GPUs from each time on, relative to now.
type profile struct {
	from []time.Duration
	free []int
}

func (p *profile) reset(w *World, running []*running) {
	p.from, p.free = append(p.from[:0], 0), append(p.free[:0], w.Free)
	for _, r := range running {
		// a job beyond its limit is about to end
		end := max((r.end - w.Now + backfillResolution - 1).Truncate(backfillResolution), backfillResolution)
		if end > backfillWindow {
			break
		}
		k := len(p.from) - 1
		if p.from[k] != end {
			p.from, p.free = append(p.from, end), append(p.free, p.free[k])
			k++
		}
		p.free[k] += r.gpus
	}
}

// find is the earliest time within the window at which n GPUs are free for d.
func (p *profile) find(n int, d time.Duration) (time.Duration, bool) {
	for i := 0; i < len(p.from); i++ {
		if p.free[i] < n {
			continue
		}
		k := i + 1
		for k < len(p.from) && p.from[k] < p.from[i]+d && p.free[k] >= n {
			k++
		}
		if k == len(p.from) || p.from[k] >= p.from[i]+d {
			return p.from[i], true
		}
		i = k
	}
	return 0, false
}

func (p *profile) reserve(at, d time.Duration, n int) {
	for i := p.cut(at); i < p.cut(at+d); i++ {
		p.free[i] -= n
	}
}

// cut makes a step at this time, and is its index.
func (p *profile) cut(at time.Duration) int {
	k, ok := slices.BinarySearch(p.from, at)
	if !ok {
		p.from = slices.Insert(p.from, k, at)
		p.free = slices.Insert(p.free, k, p.free[k-1])
	}
	return k
}
