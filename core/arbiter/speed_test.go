// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"testing"
	"time"

	"themis/core/cluster"
)

var twoSpeeds = []cluster.TypeSpeed{{Type: "a100", Speed: 1}, {Type: "v100", Speed: .5}}

// TestProgressBySpeed: what a job has done on a slow type counts by its speed
// there, is kept over a restart of the core and when the mean GPU changes, and a
// report of remaining= is of the type that it runs on.
func TestProgressBySpeed(t *testing.T) {
	w := newWorld(t.Fatalf)
	w.addNode("n1", "", 8)
	w.nodes[0].GPUs[0].Type = "v100"
	w.addNode("n2", "", 8)
	w.nodes[1].GPUs[0].Type, w.nodes[1].State = "a100", cluster.NodeDrain
	j := simJob{takes: time.Hour}
	j.ID, j.User, j.Limit, j.Shape = "1", "alice", 4*time.Hour, cluster.Shape{GPUs: 8}
	j.Hint.Runtime, j.Hint.Speed = time.Hour, twoSpeeds
	w.submit(j)
	w.run(40 * time.Minute)
	done := func(want time.Duration, when string) {
		t.Helper()
		j := w.arb.jobs["1"]
		if got := time.Duration(float64(j.Attained) * j.mean); (got - want).Abs() > 15*time.Second {
			t.Errorf("%s: %s are done, not %s", when, got, want)
		}
		if got := time.Duration(float64(j.Estimate.Total) * j.mean); (got - time.Hour).Abs() > 10*time.Second {
			t.Errorf("%s: it takes %s", when, got)
		}
		if got, want := w.arb.left(j), 2*(time.Hour-want); (got - want).Abs() > 30*time.Second {
			t.Errorf("%s: %s are left where it runs, not %s", when, got, want)
		}
	}
	done(20*time.Minute, "after 40m at half speed")
	lost := w.arb.jobs["1"].Stated(10 * time.Minute)
	w.arb.jobs["1"].Lost = 10 * time.Minute
	w.arb = reborn(w.arb, w.now)
	w.addNode("n3", "", 16) // the mean GPU is now slower: 3 of 4 are v100, or of no name and as slow
	w.run(20 * time.Minute)
	if mean := w.arb.jobs["1"].mean; math.Abs(mean-(.5*24+1*8)/32) > 1e-9 {
		t.Errorf("the mean GPU has speed %g", mean)
	}
	done(30*time.Minute, "after a restart of the core, on another mean GPU")
	if j := w.arb.jobs["1"]; (j.Stated(j.Lost) - lost).Abs() > time.Second {
		t.Errorf("failures cost %s before and %s after", lost, j.Stated(j.Lost))
	}
	w.job("1").Hint.Remaining = time.Hour
	w.run(w.tick)
	done(30*time.Minute, "as it reports")
}

// TestNobodyMovesWhileOthersWait: a job on slow GPUs leaves them for faster ones
// that are free, but not while another could take those, or its own.
func TestNobodyMovesWhileOthersWait(t *testing.T) {
	for _, waits := range []bool{false, true} {
		w := newWorld(t.Fatalf)
		w.cfg.F = 0
		for i, typ := range []string{"v100", "a100"} {
			w.addNode([]string{"n1", "n2"}[i], "", 8)
			w.nodes[i].GPUs[0].Type = typ
		}
		w.nodes[1].State = cluster.NodeDrain
		j := simJob{takes: 2 * time.Hour}
		j.ID, j.User, j.Limit, j.Shape, j.Requeueable = "1", "alice", 9*time.Hour, cluster.Shape{GPUs: 8}, true
		j.Hint.Runtime, j.Hint.Speed, j.Hint.Checkpoint = j.takes, twoSpeeds, time.Minute
		w.submit(j)
		w.run(w.cfg.Lease + w.tick)
		w.nodes[1].State = cluster.NodeUp
		if waits {
			j.ID, j.User, j.Hint = "2", "bob", cluster.Hint{Runtime: time.Hour}
			j.Shape.Type = "v100"
			w.submit(j)
		}
		w.run(2 * w.tick)
		if l := w.arb.jobs["1"].Lease; l.moves == waits {
			t.Errorf("with another waiting %v, the lease on v100 is %s", waits, l.State)
		}
	}
}

// TestSharesInWholeGPUs: the cluster's GPUs count whole; MIG instances count as
// the part of a GPU that they are, those of a divided A30 too, and so does a job
// on them. Names that only look alike are whole.
func TestSharesInWholeGPUs(t *testing.T) {
	for typ, want := range map[string]float64{"": 1, "a100": 1, "gtx1080.2": 1, "tesla_v100_32gb": 1, "a100_1g.5gb": 1. / 7, "a100_3g.20gb": 3. / 7, "nvidia_h100_7g.80gb": 1,
		"a30_2g.12gb": .5, "1g.10gb": 1. / 7, "a100_1c.3g.20gb": 1. / 7, "a100_1g.5gb.me": 1. / 7} {
		if got := cluster.Part(typ); math.Abs(got-want) > 1e-12 {
			t.Errorf("one of type %q is %g GPUs, not %g", typ, got, want)
		}
	}
	w := newWorld(t.Fatalf)
	w.addNode("n1", "", 8)
	w.addNode("n2", "", 14)
	w.nodes[1].GPUs[0].Type = "a100_1g.5gb"
	j := simJob{takes: time.Hour}
	j.ID, j.User, j.Limit, j.Shape = "1", "alice", 4*time.Hour, cluster.Shape{GPUs: 7, Type: "a100_1g.5gb"}
	j.Hint.Runtime = time.Hour
	w.submit(j)
	w.run(w.tick)
	if a := w.arb; a.gpus() != 10 || a.biggest != 8 || math.Abs(a.all[0].work-3600) > 5 {
		t.Errorf("%d GPUs, the largest node %d, the job's work %g GPU-seconds", a.gpus(), a.biggest, a.all[0].work)
	}
}

// TestSlotsUnknown: on a node whose slots nobody tells apart a job is not taken for one
// that straddles, though other nodes have slots.
func TestSlotsUnknown(t *testing.T) {
	w := newWorld(t.Fatalf)
	w.addNode("n1", "", 8)
	w.addNode("n2", "", 8)
	w.nodes[1].Slots, w.nodes[1].State = []cluster.GPUs{{Total: 4}, {Total: 4}}, cluster.NodeDrain
	j := simJob{takes: time.Hour}
	j.ID, j.User, j.Limit, j.Shape, j.Hint.Model = "1", "alice", 4*time.Hour, cluster.Shape{NodesMax: 1, GPUsPerNode: 2}, "vgg16"
	w.submit(j)
	w.run(40 * time.Minute)
	if got := w.arb.jobs["1"].Attained; (got - 40*time.Minute).Abs() > 15*time.Second {
		t.Errorf("after 40m it has done %s", got)
	}
}
