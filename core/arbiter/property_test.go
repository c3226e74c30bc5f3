// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

// TestPromisesHold drives random jobs, drains and cancellations through the
// arbiter; world.check and world.start state what must hold at each step. In the
// end everything that can run has run: nobody starves.
func TestPromisesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t.Fatalf)
		w.tick = 30 * time.Second
		w.cfg.Reclaim = rapid.SampledFrom([]Reclaim{ReclaimDeclared, ReclaimRequeueable, ReclaimNever}).Draw(t, "reclaim")
		w.cfg.Entity = rapid.SampledFrom([]Entity{ByUser, ByApp}).Draw(t, "entity")
		w.slow = rapid.Bool().Draw(t, "slow")
		w.cfg.Grid = rapid.SampledFrom([]time.Duration{0, 150 * time.Second, 10 * time.Minute}).Draw(t, "grid")
		w.cfg.Target = rapid.SampledFrom([]float64{0, 1, 1.2}).Draw(t, "target")
		w.cfg.Aim = rapid.SampledFrom([]Aim{"", AimTurnaround, AimMakespan}).Draw(t, "aim")
		w.cfg.F = rapid.SampledFrom([]float64{0, .5, .8}).Draw(t, "f")
		for i := range 3 {
			w.addNode(fmt.Sprintf("n%d", i+1), fmt.Sprintf("r%d", i/2), 4)
		}
		types := rapid.SampledFrom([][]string{{"", "", ""}, {"a100", "v100", "v100"}, {"h100", "a100", "v100"}, {"a100", "v100", "a100_1g.5gb"}}).Draw(t, "types")
		for i, n := range w.nodes {
			n.GPUs[0].Type = types[i]
			if rapid.Bool().Draw(t, "slots") {
				n.Slots = []cluster.GPUs{{Total: 2}, {Total: 2}}
			}
		}
		if rapid.Bool().Draw(t, "checked") {
			w.cfg.Idle, w.cfg.IdleAfter = IdleReclaim, 10*time.Minute
			w.checks[w.nodes[0].Name], w.checks[w.nodes[1].Name] = time.Minute, time.Minute
		}
		hosts := []string{"slurm"}
		if rapid.Bool().Draw(t, "pool") {
			hosts = append(hosts, "yarn")
			for _, n := range w.nodes {
				if n.Shared = rapid.Bool().Draw(t, "shared"); n.Shared {
					n.Slots = nil
				}
			}
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			j := simJob{takes: time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute}
			j.ID, j.User, j.Limit, j.Requeueable = fmt.Sprint(i), rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "user"), 2*time.Hour, true
			j.Shape = rapid.SampledFrom([]cluster.Shape{{GPUs: 1}, {GPUs: 2}, {GPUs: 3}, {GPUsPerNode: 4}, {NodesMin: 2, GPUsPerNode: 2}, {NodesMin: 2, GPUsPerNode: 4}, {GPUs: 6, NodesMax: 3}}).Draw(t, "shape")
			j.Host = rapid.SampledFrom(hosts).Draw(t, "host")
			if rapid.Bool().Draw(t, "idle") {
				j.idle = map[int]bool{0: true, 1: true, 2: true, 3: rapid.Bool().Draw(t, "all")}
			}
			j.Hint.Checkpoint = rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "checkpoint")
			j.Hint.Speed = rapid.SampledFrom([][]cluster.TypeSpeed{nil, nil, {{Type: "a100", Speed: 1}, {Type: "v100", Speed: .5}}, {{Type: "h100", Speed: 1}, {Type: "a100", Speed: .6}, {Type: "v100", Speed: .3}}}).Draw(t, "speed")
			j.Hint.Model = rapid.SampledFrom([]string{"", "vgg16"}).Draw(t, "model")
			if rapid.IntRange(0, 3).Draw(t, "typed") == 0 {
				j.Shape = cluster.Shape{GPUs: rapid.IntRange(1, 4).Draw(t, "gpus"), Type: types[rapid.IntRange(0, 2).Draw(t, "type")]}
			}
			w.submit(j)
			w.run(time.Duration(rapid.IntRange(0, 8).Draw(t, "wait")) * time.Minute)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				w.nodes[0].State = cluster.NodeDrain
			case 1:
				w.nodes[0].State = cluster.NodeUp
			case 2:
				if victim := w.jobs[0]; victim.State == cluster.Running {
					w.leave(victim)
					victim.State, victim.Outcome, victim.End = cluster.Ended, cluster.Cancelled, w.now
				}
			case 3: // the core is killed and started again
				if w.arb != nil {
					w.arb = reborn(w.arb, w.now)
				}
			}
		}
		w.nodes[0].State = cluster.NodeUp
		w.run(24 * time.Hour)
		for _, j := range w.jobs {
			if j.State != cluster.Ended {
				t.Fatalf("job %s of %v still waits after a day", j.ID, j.Shape)
			}
		}
	})
}

// reborn is the arbiter as the ledger would bring it back.
func reborn(a *Arbiter, now time.Time) *Arbiter {
	s := Saved{IDs: a.IDs(), Fluid: a.FluidNow()}
	for _, app := range a.State().Apps {
		s.Apps = append(s.Apps, a.SaveApp(app))
	}
	for _, j := range a.list() {
		s.Jobs = append(s.Jobs, j.SaveJob())
	}
	for _, l := range a.State().Leases {
		s.Leases = append(s.Leases, *l)
	}
	return Restore(a.cfg, now, s)
}

// TestReplayIsIdentical plays one history twice, message for message.
func TestReplayIsIdentical(t *testing.T) {
	play := func() (log []string) {
		w := newWorld(t.Fatalf)
		w.cfg.Reclaim = ReclaimRequeueable
		for i := range 4 {
			w.addNode(fmt.Sprintf("n%d", i), "", 8)
		}
		for i := range 40 {
			j := simJob{takes: time.Duration(10+i*7%50) * time.Minute}
			j.ID, j.User, j.Requeueable = fmt.Sprint(i), fmt.Sprint("u", i%5), true
			j.Shape = cluster.Shape{GPUs: 1 + i%8}
			w.submit(j)
			w.log = nil
			w.run(time.Minute)
			log = append(log, w.log...)
		}
		w.log = nil
		w.run(12 * time.Hour)
		return append(log, w.log...)
	}
	first := play()
	for range 3 {
		for i, line := range play() {
			if i >= len(first) || line != first[i] {
				t.Fatalf("line %d: %s", i, line)
			}
		}
	}
	if len(first) < 100 {
		t.Fatalf("only %d lines happened", len(first))
	}
}

// TestRestartKeepsReferences: an arbiter brought back from what its decisions
// said, and nothing else, holds apps to the same references.
func TestRestartKeepsReferences(t *testing.T) {
	w := newWorld(t.Fatalf)
	w.addNode("n1", "", 8)
	apps, jobs := map[string]SavedApp{}, map[string]SavedJob{}
	w.decided = func(d *Decision) {
		for _, app := range d.Apps {
			apps[app.ID] = w.arb.SaveApp(app)
		}
		for _, j := range d.Jobs {
			jobs[j.ID] = j.SaveJob()
		}
	}
	for i, user := range []string{"alice", "bob", "carol"} {
		j := simJob{takes: time.Duration(1+10*i) * time.Hour}
		j.ID, j.User, j.Limit, j.Shape = fmt.Sprint(i), user, 100*time.Hour, cluster.Shape{GPUs: 4}
		j.Hint.Runtime = j.takes
		w.submit(j)
	}
	w.run(4 * time.Hour)
	s := Saved{IDs: w.arb.IDs(), Fluid: w.arb.FluidNow()}
	for _, app := range apps {
		s.Apps = append(s.Apps, app)
	}
	for _, j := range jobs {
		s.Jobs = append(s.Jobs, j)
	}
	back := Restore(w.cfg, w.now, s)
	old := w.arb
	w.arb = back
	w.run(w.tick)
	for id, app := range back.apps {
		if d := app.Reference.Sub(old.apps[id].Reference).Abs(); d > 10*time.Second {
			t.Errorf("the reference of %s moved by %s", id, d)
		}
	}
}
