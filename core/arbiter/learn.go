// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// S as it proves. A job that reports its progress, and has run with as many GPUs in two
// places, shows how much slower it is in the wider one. What a user's jobs of one model=
// showed corrects S of that user's next jobs of that model, unless they say place=
// themselves. It is kept by user, so that nobody's reports change what others' jobs get.

// Place names what is measured together.
type Place struct{ User, Model string }

// Spread is the mean of some measurements, and how far apart they are.
type Spread struct {
	N    int
	Mean float64
	M2   float64 // sum of squares of differences from the mean (Welford 1962)
}

func (s *Spread) add(v float64) {
	s.N++
	d := v - s.Mean
	s.Mean += d / float64(s.N)
	s.M2 += d * (v - s.Mean)
}

// Deviation is the standard deviation of a measurement; 0 of fewer than two.
func (s *Spread) Deviation() float64 {
	if s.N < 2 {
		return 0
	}
	return math.Sqrt(s.M2 / float64(s.N-1))
}

// Factors are S by placement level relative to the slot, as measured.
type Factors [cluster.Cluster + 1]Spread

const (
	// paceLeast is for how long a job must have been seen in a place, paceWork how much
	// of its work it must have done there.
	paceLeast = 2 * time.Minute
	paceWork  = 0.01
	// priorWeight is how many measurements what is taken for S otherwise counts as.
	priorWeight = 2
)

// paces are a job's, by level.
type paces [cluster.Cluster + 1]struct {
	done float64
	took time.Duration
}

// stretch is what a job has reported since it last changed its place.
type stretch struct {
	lease    uint64
	at       time.Time // of its last report
	progress float64
}

// measure takes in a report.
func (a *Arbiter) measure(j *Job, progress float64) {
	l := j.Lease
	if l == nil || l.State != Held || j.State != cluster.Running || progress <= 0 {
		j.stretch = stretch{}
		return
	}
	if n := l.gpus(); n != j.pacedBy {
		j.paces, j.pacedBy, j.stretch = paces{}, n, stretch{}
	}
	if s := j.stretch; s.lease == l.ID && progress > s.progress {
		p := &j.paces[cluster.SpanOf(j.On, a.rack)]
		p.done += progress - s.progress
		p.took += time.Duration(float64(a.now.Sub(s.at)) * a.times(j, j.On))
	}
	j.stretch = stretch{l.ID, a.now, progress}
}

// compare learns from a job that has ended.
func (a *Arbiter) compare(j *Job) {
	if j.Hint.Model == "" || j.User == "" {
		return
	}
	base := cluster.Level(-1)
	var known []float64
	for level, p := range j.paces {
		if p.took < paceLeast || p.done < paceWork {
			continue
		}
		pace := p.done / p.took.Seconds()
		if base < 0 {
			base, known = cluster.Level(level), a.placeOf(j.User, j.Hint)
			continue
		}
		at := Place{j.User, j.Hint.Model}
		f := a.places[at]
		was := &j.paces[base]
		f[level].add(min(pace/(was.done/was.took.Seconds())*known[base], 1))
		a.places[at] = f
		if a.changed.Places == nil {
			a.changed.Places = map[Place]Factors{}
		}
		a.changed.Places[at] = f
	}
}

// placeOf is S of a job by level as far as is known, 1 within a slot.
func (a *Arbiter) placeOf(user string, h cluster.Hint) []float64 {
	out := slices.Clone(fairness.Place(h))
	if len(h.Place) > 0 {
		return out
	}
	f := a.places[Place{user, h.Model}]
	for level := range out {
		if s := &f[level]; s.N > 0 {
			out[level] = (priorWeight*out[level] + float64(s.N)*s.Mean) / float64(priorWeight+s.N)
		}
		if level > 0 {
			out[level] = min(out[level], out[level-1])
		}
	}
	return out
}

// corrected is a job's hint with S as measured.
func (a *Arbiter) corrected(user string, h cluster.Hint) cluster.Hint {
	if len(a.places) == 0 || h.Model == "" || len(h.Place) > 0 {
		return h
	}
	if _, ok := a.places[Place{user, h.Model}]; ok {
		h.Place = a.placeOf(user, h)
	}
	return h
}

// Measured is S of a user's model.
type Measured struct {
	Place
	Factors Factors
	Now     []float64 // by level: what is reckoned with
}

// Measured lists what has been measured, by user and model.
func (a *Arbiter) Measured() (out []Measured) {
	for at, f := range a.places {
		out = append(out, Measured{at, f, a.placeOf(at.User, cluster.Hint{Model: at.Model})})
	}
	slices.SortFunc(out, func(x, y Measured) int { return cmp.Or(cmp.Compare(x.User, y.User), cmp.Compare(x.Model, y.Model)) })
	return out
}
