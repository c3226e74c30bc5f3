// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// S, and speed by GPU type, as they prove. A job that reports its progress, and has run with
// as many GPUs in two places, shows how much slower it is in the wider one; one that has run
// on two types how much faster one is. What a user's jobs of one model= showed corrects that
// user's next jobs of that model, unless they say place= or speed= themselves. It is kept by
// user, so that nobody's reports change what others' jobs get.

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

// Measured is what was measured of a place.
type Measured struct {
	Levels [cluster.Cluster + 1]Spread // S relative to the slot
	Base   string                      // a type of GPUs
	Types  map[string]Spread           // speed on other types relative to Base
}

const (
	// paceLeast is for how long a job must have been seen in a place, paceWork how much
	// of its work it must have done there.
	paceLeast = 2 * time.Minute
	paceWork  = 0.01
	// priorWeight is how many measurements what is taken for S otherwise counts as.
	priorWeight = 2
)

// where is the level of a placement and the types of its GPUs, as typesOn names them.
type where struct {
	level cluster.Level
	typ   string
}

type pace struct {
	done float64
	took time.Duration
}

func (p pace) known() bool { return p.took >= paceLeast && p.done >= paceWork }

// to is how fast it is, relative to another.
func (p pace) to(q pace) float64 { return p.done / p.took.Seconds() * q.took.Seconds() / q.done }

// stretch is what a job has reported since it last changed its place.
type stretch struct {
	lease    uint64
	at       time.Time // of its last report
	progress float64
}

// measure takes in a report.
func (a *Arbiter) measure(j *Job, progress float64) {
	l := j.Lease
	if l == nil || !holds(l) || j.State != cluster.Running || progress <= 0 {
		j.stretch = stretch{}
		return
	}
	if n := l.gpus(); n != j.pacedBy || j.paces == nil {
		j.paces, j.pacedBy, j.stretch = map[where]pace{}, n, stretch{}
	}
	if s := j.stretch; s.lease == l.ID && progress > s.progress {
		at := where{cluster.SpanOf(j.On, a.rack), a.typesOn(j.On)}
		p := j.paces[at]
		j.paces[at] = pace{p.done + progress - s.progress, p.took + a.now.Sub(s.at)}
	}
	j.stretch = stretch{l.ID, a.now, progress}
}

// compare learns from a job that has ended: of two placements that differ in one respect.
func (a *Arbiter) compare(j *Job) {
	if j.Hint.Model == "" || j.User == "" || len(j.paces) < 2 {
		return
	}
	var seen []where
	for at, p := range j.paces {
		if p.known() {
			seen = append(seen, at)
		}
	}
	slices.SortFunc(seen, func(x, y where) int { return cmp.Or(cmp.Compare(x.level, y.level), cmp.Compare(x.typ, y.typ)) })
	of := Place{j.User, j.Hint.Model}
	m, known, learnt := a.places[of], a.placeOf(j.User, j.Hint), false
	m.Types = maps.Clone(m.Types)
	for i, x := range seen {
		tightest := true // of this type
		for _, y := range seen[:i] {
			tightest = tightest && y.typ != x.typ
		}
		for _, y := range seen[i+1:] {
			ratio := j.paces[y].to(j.paces[x])
			switch {
			case x.typ == y.typ && tightest:
				m.Levels[y.level].add(min(ratio*known[x.level], 1))
				learnt = true
			case x.level == y.level && x.typ != "" && y.typ != "" && !strings.Contains(x.typ+y.typ, ","):
				learnt = m.addTypes(x.typ, y.typ, ratio) || learnt
			}
		}
	}
	if !learnt {
		return
	}
	a.places[of] = m
	a.facts++
	if a.changed.Places == nil {
		a.changed.Places = map[Place]Measured{}
	}
	a.changed.Places[of] = m
}

// addTypes takes in how fast y is relative to x, if one of them has been compared before.
func (m *Measured) addTypes(x, y string, ratio float64) bool {
	if m.Base == "" {
		m.Base, m.Types = x, map[string]Spread{}
	}
	known := func(typ string) bool { return typ == m.Base || m.Types[typ].N > 0 }
	if y == m.Base || !known(x) {
		x, y, ratio = y, x, 1/ratio
	}
	if !known(x) {
		return false
	}
	if x != m.Base {
		ratio *= m.Types[x].Mean
	}
	s := m.Types[y]
	s.add(ratio)
	m.Types[y] = s
	return true
}

// placeOf is S of a job by level as far as is known, 1 within a slot.
func (a *Arbiter) placeOf(user string, h cluster.Hint) []float64 {
	out := slices.Clone(fairness.Place(h))
	if len(h.Place) > 0 {
		return out
	}
	m := a.places[Place{user, h.Model}]
	for level := range out {
		out[level] = m.Levels[level].correct(out[level])
		if level > 0 {
			out[level] = min(out[level], out[level-1])
		}
	}
	return out
}

// speedOf is a job's speed by type as measured, such that it is 1 on the mean GPU, for
// which run times then are. A job that asks for a type has no choice.
func (a *Arbiter) speedOf(user string, h cluster.Hint) []cluster.TypeSpeed {
	m := a.places[Place{user, h.Model}]
	if len(m.Types) == 0 {
		return nil
	}
	h.Speed = []cluster.TypeSpeed{{Type: m.Base, Speed: 1}}
	for _, typ := range slices.Sorted(maps.Keys(m.Types)) {
		s := m.Types[typ]
		h.Speed = append(h.Speed, cluster.TypeSpeed{Type: typ, Speed: s.correct(1)})
	}
	mean, _ := a.mean(&Job{Job: cluster.Job{Hint: h}})
	for i := range h.Speed {
		h.Speed[i].Speed /= mean
	}
	return h.Speed
}

// correct is what is taken for a value with what was measured.
func (s *Spread) correct(v float64) float64 {
	return (priorWeight*v + float64(s.N)*s.Mean) / float64(priorWeight+s.N)
}

// corrected is a job's hint with what was measured.
func (a *Arbiter) corrected(in *cluster.Job) cluster.Hint {
	h := in.Hint
	if len(a.places) == 0 || h.Model == "" {
		return h
	}
	if _, ok := a.places[Place{in.User, h.Model}]; !ok {
		return h
	}
	if len(h.Speed) == 0 && in.Shape.Type == "" {
		h.Speed = a.speedOf(in.User, h)
	}
	if len(h.Place) == 0 {
		h.Place = a.placeOf(in.User, h)
	}
	return h
}

// Learnt is what was measured of a user's model.
type Learnt struct {
	Place
	Measured
	Now    []float64           // S by level, as reckoned with
	Speeds []cluster.TypeSpeed // the same by type, 1 on the mean GPU
}

// Learnt lists what has been measured, by user and model.
func (a *Arbiter) Learnt() (out []Learnt) {
	for at, m := range a.places {
		h := cluster.Hint{Model: at.Model}
		out = append(out, Learnt{at, m, a.placeOf(at.User, h), a.speedOf(at.User, h)})
	}
	slices.SortFunc(out, func(x, y Learnt) int { return cmp.Or(cmp.Compare(x.User, y.User), cmp.Compare(x.Model, y.Model)) })
	return out
}
