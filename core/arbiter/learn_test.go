// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// reporters are jobs that report their progress, on nodes of two GPUs.
type reporters struct {
	*testing.T
	a       *Arbiter
	now     time.Time
	snap    *cluster.Snapshot
	id      int
	changed []Measured // of alice's model "mine"
}

func newReporters(t *testing.T, types ...string) *reporters {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &reporters{T: t, now: begin, a: New(Defaults(), begin), snap: &cluster.Snapshot{Host: "test"}}
	for i, typ := range types {
		r.snap.Nodes = append(r.snap.Nodes, cluster.Node{Name: fmt.Sprint("n", i+1), GPUs: []cluster.GPUs{{Type: typ, Total: 2}}})
	}
	r.step(0)
	return r
}

func (r *reporters) step(after time.Duration) {
	r.now = r.now.Add(after)
	d := r.a.Step(r.now, r.snap)
	for at, m := range d.Places {
		if at != (Place{"alice", "mine"}) {
			r.Errorf("%+v was measured", at)
		}
		r.changed = append(r.changed, m)
	}
}

// run has a job do its work on nodes, an equal part of it on each list, at speeds of so many
// per cent of it a minute; it says every tenth minute how far it is.
func (r *reporters) run(user string, hint cluster.Hint, speeds []float64, on ...[]cluster.Share) {
	r.id++
	j := cluster.Job{ID: fmt.Sprint(r.id), User: user, AnyNode: true, Requeueable: true, Hint: hint, Submit: r.now,
		Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUs: 2}}
	j.Hint.Checkpoint = time.Minute
	done := 0.0
	for k, where := range on {
		j.State, j.On, j.Start, j.Restarts = cluster.Running, where, r.now, k
		for minute := 0; done < float64(k+1)/float64(len(on)); minute++ {
			if done += speeds[k] / 100; minute%10 == 0 {
				j.Hint.Progress = math.Round(done*1000) / 1000
			}
			r.snap.Jobs = []cluster.Job{j}
			r.step(time.Minute)
		}
		j.State, j.On = cluster.Pending, nil
		r.snap.Jobs = []cluster.Job{j}
		r.step(time.Second)
	}
	j.State, j.Outcome, j.End = cluster.Ended, cluster.Completed, r.now
	r.snap.Jobs = []cluster.Job{j}
	r.step(0)
	r.snap.Jobs = nil
	r.step(time.Second)
}

func (r *reporters) hint(user string, h cluster.Hint) cluster.Hint {
	return r.a.corrected(&cluster.Job{User: user, Hint: h})
}

func (r *reporters) near(what string, got, want float64) {
	r.Helper()
	if math.Abs(got-want) > 0.01 {
		r.Errorf("%s: %.3f, want %.3f", what, got, want)
	}
}

var (
	mine       = cluster.Hint{Model: "mine"}
	n1, n2, n3 = []cluster.Share{{Node: "n1", GPUs: 2}}, []cluster.Share{{Node: "n2", GPUs: 2}}, []cluster.Share{{Node: "n3", GPUs: 2}}
)

// TestPlaceMeasured: a job reports its progress, on one node and then on two, where it really
// runs at 0.4 of its speed. Its user's next jobs of that model are reckoned with what that
// showed, and with more of it each time; others' are not, and who says place= is believed.
func TestPlaceMeasured(t *testing.T) {
	r := newReporters(t, "", "")
	rack := func(user string, h cluster.Hint) float64 {
		return fairness.Speed(r.hint(user, h), cluster.Cluster) / fairness.Speed(r.hint(user, h), cluster.Slot)
	}
	both := []cluster.Share{{Node: "n1", GPUs: 1}, {Node: "n2", GPUs: 1}}
	r.near("before", rack("alice", mine), .85)
	r.run("alice", mine, []float64{1, 1}, n1, n1)
	r.near("one place says nothing", rack("alice", mine), .85)
	r.run("alice", mine, []float64{1, .4}, n1, both)
	r.near("once", rack("alice", mine), (2*.85+.4)/3)
	r.near("another's", rack("bob", mine), .85)
	r.near("another model's", rack("alice", cluster.Hint{Model: "vgg16"}), .52)
	r.near("who says it", rack("alice", cluster.Hint{Model: "mine", Place: []float64{1, 1, .9}}), .9)
	r.run("alice", mine, []float64{.5, 1}, both, n1)
	r.near("twice", rack("alice", mine), (2*.85+.4+.5)/4)
	r.run("carol", cluster.Hint{}, []float64{1, .4}, n1, both) // no model
	if len(r.changed) != 2 || r.changed[1].Levels[cluster.Cluster].N != 2 || math.Abs(r.changed[1].Levels[cluster.Cluster].Deviation()-.07) > .01 {
		t.Errorf("for the ledger: %+v", r.changed)
	}
	got := r.a.Learnt()
	b := Restore(Defaults(), r.now, Saved{Places: map[Place]Measured{got[0].Place: got[0].Measured}})
	if len(got) != 1 || !slices.EqualFunc(b.Learnt(), got, func(x, y Learnt) bool { return x.Levels == y.Levels && slices.Equal(x.Now, y.Now) }) {
		t.Errorf("measured %+v, restored %+v", got, b.Learnt())
	}
	r.near("two GPUs on two nodes", fairness.Rate(r.hint("alice", mine), 2, 2, cluster.Cluster)/2, (2*.85+.4+.5)/4)
}

// TestSpeedMeasured: the same on GPUs of other types. Speeds are such that the mean GPU has 1,
// so run times stay what they are; of three types each is compared with the first.
func TestSpeedMeasured(t *testing.T) {
	r := newReporters(t, "a100", "v100", "t4")
	of := func(typ string) float64 {
		return fairness.SpeedOn(r.hint("alice", mine), typ) / fairness.SpeedOn(r.hint("alice", mine), "a100")
	}
	r.run("alice", mine, []float64{1, .4}, n1, n2)
	r.near("v100", of("v100"), (2+.4)/3)
	r.near("t4, which no job has been on", of("t4"), (2+.4)/3)
	r.run("alice", mine, []float64{.4, .2}, n2, n3)
	r.near("t4, by way of v100", of("t4"), (2+.2)/3)
	r.run("alice", mine, []float64{.2, 1}, n3, n1)
	r.near("t4, the other way round", of("t4"), (2+.2+.2)/4)
	r.near("v100 still", of("v100"), (2+.4)/3)
	h := r.hint("alice", mine)
	r.near("the mean GPU", (fairness.SpeedOn(h, "a100")+fairness.SpeedOn(h, "v100")+fairness.SpeedOn(h, "t4"))/3, 1)
	if typed := r.a.corrected(&cluster.Job{User: "alice", Hint: mine, Shape: cluster.Shape{Type: "v100"}}); typed.Speed != nil {
		t.Errorf("a job that asks for a type: %v", typed.Speed)
	}
	said := cluster.Hint{Model: "mine", Speed: []cluster.TypeSpeed{{Type: "t4", Speed: 1}}}
	if got := r.hint("alice", said); !slices.Equal(got.Speed, said.Speed) {
		t.Errorf("who says it: %v", got.Speed)
	}
	if got := r.hint("bob", mine); got.Speed != nil {
		t.Errorf("another's: %v", got.Speed)
	}
	// The auction gives its next job the fastest, though its nodes come in another order.
	r.snap.Nodes[0], r.snap.Nodes[2] = r.snap.Nodes[2], r.snap.Nodes[0]
	r.snap.Jobs = []cluster.Job{{ID: "next", User: "alice", AnyNode: true, Hint: mine, Submit: r.now, Shape: cluster.Shape{NodesMin: 1, GPUs: 2}}}
	r.step(time.Second)
	r.step(time.Second)
	if l := r.a.jobs["next"].Lease; l == nil || l.On[0].Node != "n1" {
		t.Errorf("its next job has %+v, want n1, the a100", l)
	}
	if e, _ := r.a.Explain("next"); math.Abs(e.Speed-fairness.SpeedOn(h, "a100")) > .01 {
		t.Errorf("it is explained as of speed %.3f", e.Speed)
	}
}

// TestAddTypes: whichever two types are compared, and in whichever order, what is kept is how
// fast the others are relative to the first.
func TestAddTypes(t *testing.T) {
	truth := map[string]float64{"a": 8, "b": 4, "c": 2, "d": 1}
	for _, c := range []struct{ pairs, unknown string }{
		{"ab bc cd", ""}, {"ab cb dc", ""}, {"cd bd ad", ""}, {"ba ab ba", ""}, {"bd ab ca ac cb", ""}, {"ab cd cd", "cd"},
	} {
		var m Measured
		for _, p := range strings.Fields(c.pairs) {
			x, y := p[:1], p[1:]
			if took := m.addTypes(x, y, truth[y]/truth[x]); took == strings.Contains(c.unknown, x) {
				t.Errorf("%s: %s relative to %s: taken %v", c.pairs, y, x, took)
			}
		}
		if m.Types[m.Base].N > 0 {
			t.Errorf("%s: the base is relative to itself", c.pairs)
		}
		for typ, s := range m.Types {
			if want := truth[typ] / truth[m.Base]; math.Abs(s.Mean-want) > 1e-9 || s.Deviation() > 1e-9 {
				t.Errorf("%s: %s is %g of %s, want %g", c.pairs, typ, s.Mean, m.Base, want)
			}
		}
	}
}
