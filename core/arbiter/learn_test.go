// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// TestPlaceMeasured: a job reports its progress every ten minutes, on one node and then on
// two, where it really runs at 0.4 of its speed. Its user's next jobs of that model are
// reckoned with what that showed, and with more of it each time; others' are not, and who
// says place= is believed.
func TestPlaceMeasured(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	a := New(Defaults(), begin)
	snap := &cluster.Snapshot{Host: "test", Nodes: []cluster.Node{{Name: "n1", GPUs: []cluster.GPUs{{Total: 2}}}, {Name: "n2", GPUs: []cluster.GPUs{{Total: 2}}}}}
	var changed []Factors
	step := func() {
		d := a.Step(now, snap)
		for at, f := range d.Places {
			if at != (Place{"alice", "mine"}) {
				t.Errorf("%+v was measured", at)
			}
			changed = append(changed, f)
		}
	}
	// run has a job do work on nodes, half of it on each list, at speeds of so many per
	// cent of it a minute; it says how far it is every tenth minute.
	id := 0
	run := func(user string, hint cluster.Hint, speeds []float64, on ...[]cluster.Share) {
		id++
		j := cluster.Job{ID: fmt.Sprint(id), User: user, AnyNode: true, Requeueable: true, Hint: hint, Submit: now,
			Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUs: 2}}
		j.Hint.Checkpoint = time.Minute
		done := 0.0
		for k, where := range on {
			j.State, j.On, j.Start, j.Restarts = cluster.Running, where, now, k
			for minute := 0; done < 0.5*float64(k+1); minute++ {
				if done += speeds[k] / 100; minute%10 == 0 {
					j.Hint.Progress = math.Round(done*1000) / 1000
				}
				snap.Jobs = []cluster.Job{j}
				now = now.Add(time.Minute)
				step()
			}
			j.State, j.On = cluster.Pending, nil
			snap.Jobs = []cluster.Job{j}
			now = now.Add(time.Second)
			step()
		}
		j.State, j.Outcome, j.End = cluster.Ended, cluster.Completed, now
		snap.Jobs = []cluster.Job{j}
		step()
		snap.Jobs = nil
		now = now.Add(time.Second)
		step()
	}
	rack := func(user string, h cluster.Hint) float64 {
		return fairness.Speed(a.corrected(user, h), cluster.Cluster) / fairness.Speed(a.corrected(user, h), cluster.Slot)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%s: %.3f, want %.3f", what, got, want)
		}
	}
	mine := cluster.Hint{Model: "mine"}
	one, two := []cluster.Share{{Node: "n1", GPUs: 2}}, []cluster.Share{{Node: "n1", GPUs: 1}, {Node: "n2", GPUs: 1}}
	near("before", rack("alice", mine), .85)
	run("alice", mine, []float64{1, 1}, one, one)
	near("one place says nothing", rack("alice", mine), .85)
	run("alice", mine, []float64{1, .4}, one, two)
	near("once", rack("alice", mine), (2*.85+.4)/3)
	near("another's", rack("bob", mine), .85)
	near("another model's", rack("alice", cluster.Hint{Model: "vgg16"}), .52)
	near("who says it", rack("alice", cluster.Hint{Model: "mine", Place: []float64{1, 1, .9}}), .9)
	run("alice", mine, []float64{.5, 1}, two, one)
	near("twice", rack("alice", mine), (2*.85+.4+.5)/4)
	run("carol", cluster.Hint{}, []float64{1, .4}, one, two) // no model
	if len(changed) != 2 || changed[1][cluster.Cluster].N != 2 || math.Abs(changed[1][cluster.Cluster].Deviation()-.07) > .01 {
		t.Errorf("for the ledger: %+v", changed)
	}
	got := a.Measured()
	b := Restore(Defaults(), now, Saved{Places: map[Place]Factors{got[0].Place: got[0].Factors}})
	if len(got) != 1 || !slices.EqualFunc(b.Measured(), got, func(x, y Measured) bool { return x.Factors == y.Factors && slices.Equal(x.Now, y.Now) }) {
		t.Errorf("measured %+v, restored %+v", got, b.Measured())
	}
	if f := fairness.Rate(a.corrected("alice", mine), 2, 2, cluster.Cluster); math.Abs(f/2-(2*.85+.4+.5)/4) > .01 {
		t.Errorf("two GPUs on two nodes count as %.2f", f)
	}
}
