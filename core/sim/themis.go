// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"themis/core/arbiter"
	"themis/core/cluster"
)

// begin is the arbiter's clock at the trace's begin.
var begin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// host is a cluster's scheduler with the arbiter plugged in, as slurmctld is
// with select/themis: it shows the arbiter what there is and does what it says.
type host struct {
	cfg    arbiter.Config
	arb    *arbiter.Arbiter
	snap   cluster.Snapshot
	jobs   map[string]*hosted
	order  []*hosted // those the arbiter is shown, by submission
	nodes  map[string]int
	on     map[uint64][]cluster.Share // of leases that may start
	agents []*agent                   // of elastic apps, by App.Index; nil if there are none
}

// hosted is a job as the arbiter sees it: a gang.
type hosted struct {
	cluster.Job
	gang  *Job
	at    []Share // the same as On
	agent *agent  // of an elastic job, which may have two gangs; else nil
	over  bool
}

func (w *World) newHost(cfg arbiter.Config) *host {
	h := &host{cfg: cfg, arb: arbiter.New(cfg, begin), jobs: map[string]*hosted{}, nodes: map[string]int{},
		on: map[uint64][]cluster.Share{}}
	h.snap.Host = "sim"
	for i := range w.Nodes {
		n := *w.Nodes[i].Node
		var all cluster.GPUs
		for _, g := range n.GPUs {
			all.Type = g.Type
			all.Total += g.Total
		}
		n.GPUs = []cluster.GPUs{all}
		n.CPUs, n.CPUsUsed, n.MemMiB, n.MemUsed = 0, 0, 0, 0 // traces say nothing of them
		h.snap.Nodes = append(h.snap.Nodes, n)
		h.nodes[n.Name] = i
	}
	return h
}

// Decide shows the arbiter the cluster and does what it says, until it has
// nothing more to say.
func (h *host) Decide(w *World) {
	for _, j := range w.Arrived {
		h.arrive(w, j)
	}
	for _, j := range w.Ended {
		h.leave(j)
	}
	for range 8 { // a reclaim, the promotion of what waited for it, a grant
		for _, a := range h.agents {
			if a != nil {
				a.restate(w)
			}
		}
		h.observe(w)
		d := h.arb.Step(begin.Add(w.Now), &h.snap)
		if !h.obey(w, &d) {
			break
		}
	}
	if next := h.arb.Next(); !next.IsZero() {
		w.Wake(next.Sub(begin))
	}
}

func (h *host) add(s *hosted) {
	h.jobs[s.ID] = s
	h.order = append(h.order, s)
}

// arrive submits a job, as its user would with sbatch.
func (h *host) arrive(w *World, j *Job) {
	if j.Elastic {
		if h.agents == nil {
			h.agents = make([]*agent, len(w.Apps))
		}
		if h.agents[j.App.Index] == nil {
			h.agents[j.App.Index] = h.newAgent(w, j.App)
		}
		h.agents[j.App.Index].arrive(w, j)
		return
	}
	s := &hosted{gang: j, Job: h.form(w, j, strconv.Itoa(j.Index+1), j.GPUs)}
	s.Hint.Runtime = j.Told
	h.add(s)
}

// form is a job as it is submitted.
func (h *host) form(w *World, j *Job, id string, gpus int) cluster.Job {
	user := cmp.Or(j.User, "user")
	uid := fnv.New32a()
	uid.Write([]byte(user))
	name := cmp.Or(j.Name, "job")
	if w.Estimate == "limit" {
		name += "-" + id // no two alike: there is no history to learn from
	}
	return cluster.Job{ID: id, User: user, UID: uid.Sum32(), Account: j.Account, Name: name,
		Submit: begin.Add(w.Now), Eligible: begin.Add(w.Now), Limit: j.Limit, Requeueable: true, AnyNode: true,
		Shape: cluster.Shape{NodesMin: 1, GPUs: gpus},
		Hint:  cluster.Hint{App: j.App.ID, Order: "long", Checkpoint: w.Checkpoint, Model: j.Model, Place: j.Place}}
}

// leave ends what stood for a job that has ended.
func (h *host) leave(j *Job) {
	if j.Elastic {
		h.agents[j.App.Index].leave(j)
	} else {
		h.jobs[strconv.Itoa(j.Index+1)].over = true
	}
}

// observe brings the snapshot up to date; jobs that ended are in it once.
func (h *host) observe(w *World) {
	for i := range h.snap.Nodes {
		n := &h.snap.Nodes[i]
		n.State = cluster.NodeUp
		if w.Nodes[i].Down {
			n.State = cluster.NodeDown
		}
		n.GPUs[0].Used = 0
	}
	h.snap.Jobs = h.snap.Jobs[:0]
	kept := h.order[:0]
	for _, s := range h.order {
		if s.State == cluster.Ended {
			delete(h.jobs, s.ID)
			continue
		}
		kept = append(kept, s)
		s.see(w)
		if s.State == cluster.Running {
			for _, on := range s.at {
				h.snap.Nodes[on.Node].GPUs[0].Used += on.GPUs
			}
		}
		h.snap.Jobs = append(h.snap.Jobs, s.Job)
	}
	h.order = kept
}

// see updates what the host knows of a job.
func (s *hosted) see(w *World) {
	switch {
	case s.over:
		s.State, s.Outcome, s.On = cluster.Ended, cluster.Completed, nil
		s.End = begin.Add(w.Now)
	case s.agent != nil: // its agent has it
	case s.gang.Held == 0 && s.State == cluster.Running: // its node failed
		s.State, s.On, s.Restarts = cluster.Pending, nil, s.Restarts+1
	}
}

// obey does what a decision says, and tells whether anything was to be done.
func (h *host) obey(w *World, d *arbiter.Decision) bool {
	for _, l := range d.Leases {
		switch l.State {
		case arbiter.Reserved, arbiter.Granted:
			h.on[l.ID] = slices.Clone(l.On)
		default:
			delete(h.on, l.ID)
		}
	}
	acted := false
	for _, r := range d.Reclaims {
		if s := h.jobs[r.Job]; r.Requeue && s != nil && s.State == cluster.Running {
			s.stop(w)
			acted = true
		}
	}
	for _, g := range d.Grants {
		if s := h.jobs[g.Job]; s != nil && s.State == cluster.Pending && h.fits(w, h.on[g.Lease]) {
			s.start(h, w, h.on[g.Lease])
			acted = true
		}
	}
	for _, a := range h.agents {
		if a != nil {
			a.place(w, true)
		}
	}
	for _, a := range h.agents {
		if a != nil {
			a.place(w, false)
		}
	}
	return acted
}

func (h *host) fits(w *World, on []cluster.Share) bool {
	return len(on) > 0 && !slices.ContainsFunc(on, func(s cluster.Share) bool {
		return w.Nodes[h.nodes[s.Node]].Down
	})
}

func (s *hosted) start(h *host, w *World, on []cluster.Share) {
	s.State, s.Start, s.On, s.at = cluster.Running, begin.Add(w.Now), on, h.shares(on)
	if s.agent == nil {
		w.Place(s.gang, s.at)
	}
}

func (h *host) shares(on []cluster.Share) []Share {
	out := make([]Share, len(on))
	for i, s := range on {
		out[i] = Share{h.nodes[s.Node], s.GPUs}
	}
	return out
}

// stop requeues a job, warned in time: it loses nothing.
func (s *hosted) stop(w *World) {
	s.State, s.On, s.Restarts = cluster.Pending, nil, s.Restarts+1
	if s.agent == nil {
		w.Place(s.gang, nil)
	}
}
