// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"themis/core/cluster"
)

// agent is an elastic app's own scheduler, the lower of the paper's two levels
// (section 4). It bids for each job at full width. For a job that has to wait it
// also bids for a stopgap: a machine too small for the whole job, on which it runs
// slower until its turn comes.
type agent struct {
	host  *host
	app   *App
	live  []*elastic
	small []class // of machines, the largest first
}

// class is all machines of one size.
type class struct {
	gpus  int
	names []string
}

// elastic is a job and what the arbiter knows it by.
type elastic struct {
	*Job
	full    *hosted
	stopgap *hosted // nil: none
	made    int     // stopgaps so far
}

func (h *host) newAgent(w *World, app *App) *agent {
	a := &agent{host: h, app: app}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		k := slices.IndexFunc(a.small, func(c class) bool { return c.gpus == n.Total })
		if k < 0 {
			k = len(a.small)
			a.small = append(a.small, class{gpus: n.Total})
		}
		a.small[k].names = append(a.small[k].names, n.Name)
	}
	slices.SortFunc(a.small, func(x, y class) int { return cmp.Compare(y.gpus, x.gpus) })
	return a
}

func (a *agent) arrive(w *World, j *Job) {
	e := &elastic{Job: j}
	e.full = &hosted{gang: j, agent: a, Job: a.host.form(w, j, strconv.Itoa(j.Index+1), j.GPUs)}
	e.full.Hint.Runtime = max(j.Told, time.Second)
	a.host.add(e.full)
	a.live = append(a.live, e)
}

func (a *agent) leave(j *Job) {
	a.live = slices.DeleteFunc(a.live, func(e *elastic) bool {
		if e.Job == j {
			e.full.over = true
			e.drop()
		}
		return e.Job == j
	})
}

func (e *elastic) drop() {
	if e.stopgap != nil {
		e.stopgap.over = true
		e.stopgap = nil
	}
}

// restate says how much is left of each job, and for what stopgaps the app bids:
// of each size as many as there are machines, the longest jobs first.
func (a *agent) restate(w *World) {
	left := func(e *elastic) float64 { return e.Guess() / float64(e.GPUs) }
	for _, e := range a.live {
		w.Sync(e.Job)
		e.full.Hint.Remaining = max(time.Duration(left(e)*float64(time.Second)), time.Millisecond)
		if e.Held == 0 { // if it ran, its node has failed
			for _, s := range []*hosted{e.full, e.stopgap} {
				if s != nil && s.State == cluster.Running {
					s.stop(w)
				}
			}
		}
	}
	waiting := slices.DeleteFunc(slices.Clone(a.live), func(e *elastic) bool { return e.full.State == cluster.Running })
	slices.SortStableFunc(waiting, func(x, y *elastic) int { return cmp.Compare(left(y), left(x)) })
	room := make([]int, len(a.small))
	for k, c := range a.small {
		room[k] = len(c.names)
	}
	for _, e := range waiting {
		for k, c := range a.small {
			if e.stopgap != nil && e.stopgap.Shape.GPUs == c.gpus {
				room[k]--
			}
		}
	}
	for _, e := range waiting {
		k := slices.IndexFunc(a.small, func(c class) bool { return c.gpus < e.GPUs })
		for k >= 0 && k < len(room) && room[k] <= 0 {
			k++
		}
		if e.stopgap != nil || k < 0 || k >= len(room) {
			continue
		}
		room[k]--
		e.made++
		e.stopgap = &hosted{gang: e.Job, agent: a, Job: a.host.form(w, e.Job, strconv.Itoa(e.Index+1)+"."+strconv.Itoa(e.made), a.small[k].gpus)}
		e.stopgap.AnyNode, e.stopgap.Nodes = false, a.small[k].names
		e.stopgap.Hint.Runtime = time.Millisecond // the job itself states what is left
		e.stopgap.Hint.Remaining = time.Millisecond
		a.host.add(e.stopgap)
	}
}

// place lets jobs run where the app now holds GPUs; first all that is given up.
func (a *agent) place(w *World, giveUp bool) {
	for _, e := range a.live {
		var on []Share
		if e.full.State == cluster.Running {
			on = a.host.shares(e.full.On)
			e.drop()
		} else if e.stopgap != nil && e.stopgap.State == cluster.Running {
			on = a.host.shares(e.stopgap.On)
		}
		if giveUp && !slices.Equal(on, e.On) {
			w.Place(e.Job, nil)
		} else if !giveUp {
			w.Place(e.Job, on)
		}
	}
}
