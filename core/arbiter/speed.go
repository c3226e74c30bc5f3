// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"themis/core/auction"
	"themis/core/cluster"
	"themis/core/fairness"
)

// GPUs of several types. A share of the cluster is the same part of each type, so
// an app's work and run times are kept as of the cluster's mean GPU: of a job that
// says speed=, the mean of its speeds over all GPUs; of a MIG instance, the part of
// a whole GPU that it is.

// size is the job's GPUs in its smallest form, in whole GPUs.
func (j *Job) size() float64 { return float64(j.Shape.Count()) * cluster.Part(j.Shape.Type) }

// Stated is a run time of the job as its user would state it.
func (j *Job) Stated(d time.Duration) time.Duration {
	return time.Duration(float64(d) * cmp.Or(j.mean, 1))
}

// rate is the job's speed on the mean GPU, in whole GPUs.
func (j *Job) rate(gpus int, level cluster.Level) float64 {
	return j.pace(gpus, level) * cluster.Part(j.Shape.Type)
}

// pace is its speed in GPUs at its best place: within a slot if it fits one, else on
// one machine. Who fits none, or whose host does not tell them apart, knows no slots.
func (j *Job) pace(gpus int, level cluster.Level) float64 {
	if !j.slotted {
		return fairness.Rate(j.Hint, j.Shape.Count(), gpus, max(level, cluster.Machine))
	}
	return fairness.Rate(j.Hint, j.Shape.Count(), gpus, level) / fairness.Speed(j.Hint, cluster.Slot)
}

// hinted says whether the job is faster on some types than on others.
func (j *Job) hinted() bool { return len(j.Hint.Speed) > 0 }

// suits says whether the node's GPUs are what the job asks for, as far as MIG
// instances go.
func suits(j *Job, n *cluster.Node) bool { return !j.whole || !n.Sliced() }

// wantsWhole says whether a job is to have whole GPUs: it names no type, the host
// might give it any, and some node that it may use has no MIG instances. Where all
// have some, it is as without us.
func (a *Arbiter) wantsWhole(j *Job) bool {
	if j.Shape.Type != "" || !a.sliced {
		return false
	}
	whole := func(n *cluster.Node) bool { return n != nil && n.Of("") > 0 && !n.Sliced() }
	if j.AnyNode {
		return slices.ContainsFunc(a.nodes, func(n cluster.Node) bool { return whole(&n) })
	}
	return slices.ContainsFunc(j.Nodes, func(name string) bool { return whole(a.nodeOf(name)) })
}

// speedOn is the job's speed on a node: the host gives it GPUs of any type that it
// may have, so the slowest counts.
func (j *Job) speedOn(n *cluster.Node) float64 {
	if j.Shape.Type != "" {
		return fairness.SpeedOn(j.Hint, j.Shape.Type)
	}
	least := 0.0
	for _, g := range n.GPUs {
		if s := fairness.SpeedOn(j.Hint, g.Type); g.Total > 0 && (least == 0 || s < least) {
			least = s
		}
	}
	return cmp.Or(least, 1)
}

// mean is the job's speed on the mean GPU, and fastest on the fastest one.
func (a *Arbiter) mean(j *Job) (mean, fastest float64) {
	if !j.hinted() {
		return 1, 1
	}
	if j.Shape.Type != "" {
		s := fairness.SpeedOn(j.Hint, j.Shape.Type)
		return s, s
	}
	var sum, gpus float64
	for _, t := range a.types {
		s := fairness.SpeedOn(j.Hint, t.Type)
		sum, gpus, fastest = sum+s*float64(t.Total), gpus+float64(t.Total), max(fastest, s)
	}
	if gpus == 0 {
		return 1, 1
	}
	return sum / gpus, fastest
}

// countTypes counts the cluster's whole GPUs by type, whatever the state of their nodes.
func (a *Arbiter) countTypes() {
	a.types, a.sliced = a.types[:0], false
	for i := range a.nodes {
		for _, g := range a.nodes[i].GPUs {
			at := slices.IndexFunc(a.types, func(t cluster.GPUs) bool { return t.Type == g.Type })
			switch {
			case cluster.Part(g.Type) < 1:
				a.sliced = a.sliced || g.Total > 0
			case at >= 0:
				a.types[at].Total += g.Total
			default:
				a.types = append(a.types, cluster.GPUs{Type: g.Type, Total: g.Total})
			}
		}
	}
	slices.SortFunc(a.types, func(x, y cluster.GPUs) int { return cmp.Compare(x.Type, y.Type) })
}

// gauge brings what is kept of a job to the mean GPU as it now is.
func (a *Arbiter) gauge(j *Job) {
	mean, fastest := a.mean(j)
	if j.mean > 0 && j.mean != mean {
		scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * j.mean / mean) }
		j.Attained, j.Lost, j.declared = scale(j.Attained), scale(j.Lost), scale(j.declared)
		if r := j.report; r != nil {
			j.report = &fairness.Report{Remaining: scale(r.Remaining), Progress: r.Progress, Attained: scale(r.Attained)}
		}
	}
	j.mean, j.fastest = mean, fastest/mean
	j.whole = a.wantsWhole(j)
	j.slotted = a.slot > 0 && j.Shape.Count() <= a.slot && j.Shape.NodesMin <= 1
}

// times is how fast the job is on nodes, in mean GPUs each.
func (a *Arbiter) times(j *Job, on []cluster.Share) float64 {
	if !j.hinted() || len(on) == 0 {
		return 1
	}
	least := 0.0
	for _, s := range on {
		if n := a.nodeOf(s.Node); n != nil {
			if v := j.speedOn(n); least == 0 || v < least {
				least = v
			}
		}
	}
	if least == 0 {
		return 1
	}
	return least / cmp.Or(j.mean, 1)
}

// left is how long the job still takes where it is.
func (a *Arbiter) left(j *Job) time.Duration {
	left := j.Estimate.Total - j.Attained
	if j.Lease == nil || !j.hinted() {
		return left
	}
	return time.Duration(float64(left) / a.times(j, j.Lease.On))
}

// speeds are the nodes by how fast a job is on them.
type speeds struct {
	least float64 // on the slowest, in mean GPUs
	sets  []auction.Faster
}

// speedsOf finds or makes them; nil if the job says nothing, or has no choice.
func (m *market) speedsOf(a *Arbiter, j *Job) *speeds {
	if !j.hinted() || j.Shape.Type != "" {
		return nil
	}
	key := fmt.Sprint(j.Hint.Speed)
	if s := m.speeds[key]; s != nil {
		return s
	}
	by := map[float64][]string{}
	var found []float64
	for i := range a.nodes {
		if n := &a.nodes[i]; n.State == cluster.NodeUp && suits(j, n) && len(n.GPUs) > 0 {
			v := j.speedOn(n)
			if by[v] == nil {
				found = append(found, v)
			}
			by[v] = append(by[v], n.Name)
		}
	}
	slices.SortFunc(found, func(x, y float64) int { return cmp.Compare(y, x) })
	s := &speeds{least: 1}
	var names []string
	for i, v := range found {
		if i == len(found)-1 {
			s.least = v / j.mean
			break
		}
		names = append(names, by[v]...)
		s.sets = append(s.sets, auction.Faster{Scope: auction.NewScope(names), Times: v / found[len(found)-1]})
	}
	m.speeds[key] = s
	return s
}

// faster lists the free nodes, all of one speed, on which a running job would
// save more time than two restarts take, half of it being for the risk as in
// worthMoving; nil if there are none.
func (a *Arbiter) faster(j *Job) (nodes []string, times float64) {
	l, sh := j.Lease, &j.Shape
	if !j.hinted() || sh.Type != "" || l == nil || l.State != Held || j.State != cluster.Running || !a.reclaimable(j) ||
		!j.AnyNode || sh.Exclusive || len(j.Required) > 0 {
		return nil, 0
	}
	left := (j.Estimate.Total - j.Attained).Seconds()
	now, each := a.times(j, l.On), cmp.Or(sh.GPUsPerNode, sh.GPUs)
	by := map[float64][]string{}
	for i := range a.nodes {
		n := &a.nodes[i]
		v := j.speedOn(n) / j.mean
		if n.State != cluster.NodeUp || n.Shared || !suits(j, n) || left/now-left/v <= 2*a.cfg.Restart.Seconds() || freeOf(n) < each || a.unclaimed(n) < each {
			continue
		}
		if by[v] = append(by[v], n.Name); len(by[v]) >= sh.NodesMin {
			times = max(times, v)
		}
	}
	return by[times], times
}

// seeks says whether the job wants GPUs, or faster ones once its lease has run out.
func (a *Arbiter) seeks(j *Job) bool {
	if a.wants(j) {
		return true
	}
	nodes, _ := a.faster(j)
	return nodes != nil
}

// speedUp lets one running job a round bid for faster GPUs that are free, instead
// of for its own, if nobody waits: it finds them or stays where it is.
func (m *market) speedUp(a *Arbiter, j *Job, g *auction.Gang) bool {
	if !j.hinted() || m.faster != nil || slices.ContainsFunc(a.list(), a.wants) {
		return false
	}
	nodes, times := a.faster(j)
	if nodes == nil {
		return false
	}
	m.faster = j
	g.Scope, g.Faster = auction.NewScope(nodes), nil
	g.Rate = func(gpus int, level cluster.Level) float64 { return j.rate(gpus, level) * times }
	return true
}

// typesOn names the types of the nodes' GPUs.
func (a *Arbiter) typesOn(on []cluster.Share) string {
	var out []string
	for _, s := range on {
		if n := a.nodeOf(s.Node); n != nil {
			for _, g := range n.GPUs {
				if g.Type != "" && !slices.Contains(out, g.Type) {
					out = append(out, g.Type)
				}
			}
		}
	}
	return strings.Join(out, ", ")
}
