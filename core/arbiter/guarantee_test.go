// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"themis/core/cluster"
)

// outcome is how an app fared.
type outcome struct {
	submit, end, reference time.Time
}

// follow runs until all jobs are done and returns each app's end beside its
// final reference.
func follow(w *world, limit time.Duration) map[string]outcome {
	out := map[string]outcome{}
	for deadline := w.now.Add(limit); w.now.Before(deadline); {
		w.run(w.tick)
		done := true
		for id, app := range w.arb.apps {
			out[id] = outcome{app.Submit, app.Ended, app.Reference}
			state, _ := w.arb.fluid.State(id)
			done = done && !app.Ended.IsZero() && state.Left == 0
		}
		for _, j := range w.jobs {
			done = done && j.State == cluster.Ended
		}
		if done {
			break
		}
	}
	return out
}

// TestExcessOverReference: with leases and whole gangs an app may end after its
// reference. By how much is bounded by what indivisible things force: its
// longest job, as in Graham's bound for list scheduling, and one cycle of turns,
// in which the largest gang of every app is served once, each turn as long as a
// lease, the grace period and what a host takes to react.
func TestExcessOverReference(t *testing.T) {
	var sum time.Duration
	const seeds = 16
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t.Fatalf)
		w.cfg.Reclaim, w.cfg.Lease, w.cfg.LeaseMin, w.cfg.Grace = ReclaimRequeueable, 5*time.Minute, time.Minute, 30*time.Second
		w.cfg.Restart = 0
		const gpus = 32
		for i := range gpus / 8 {
			w.addNode(fmt.Sprint("n", i), "r", 8)
		}
		turns, longest := 0, map[string]time.Duration{}
		for u := range 8 {
			size := 1 << r.IntN(4)
			turns += size
			user := fmt.Sprint("u", u)
			for k := range 1 + r.IntN(6) {
				j := simJob{takes: time.Duration(10+r.IntN(110)) * time.Minute}
				j.ID, j.User, j.Limit, j.Requeueable = fmt.Sprint(100*u+k), user, 100*time.Hour, true
				j.Shape = cluster.Shape{GPUsPerNode: size}
				j.Hint = cluster.Hint{App: "sweep", Runtime: j.takes, Checkpoint: time.Minute}
				longest[user+"/sweep"] = max(longest[user+"/sweep"], j.takes)
				w.submit(j)
			}
			w.run(time.Duration(r.IntN(20)) * time.Minute)
		}
		cycle := time.Duration((turns+gpus-1)/gpus+1) * (w.cfg.Lease + w.cfg.Grace + 3*w.tick)
		var worst, bound time.Duration
		for id, o := range follow(w, 100*time.Hour) {
			d := o.end.Sub(o.reference)
			if d > worst {
				worst, bound = d, longest[id]+cycle
			}
			if d > longest[id]+cycle {
				t.Errorf("seed %d: %s ends %s after its reference, at most %s is promised", seed, id, d, longest[id]+cycle)
			}
		}
		sum += worst
		t.Logf("seed %2d: the latest app ends %s after its reference; bound %s", seed, worst.Round(time.Second), bound)
	}
	t.Logf("mean of the latest %s", (sum / seeds).Round(time.Second))
}

// TestLyingDoesNotPay: eight equal users run one sweep after another; one of
// them lies about run times or divides each sweep into several apps. When its
// last sweep ends is compared with the honest world; in a single world leases
// that happen to end at a good moment are worth several percent either way.
func TestLyingDoesNotPay(t *testing.T) {
	const users, jobs = 8, 4
	play := func(takes time.Duration, sweeps int, says float64, apps int) time.Duration {
		w := newWorld(t.Fatalf)
		w.cfg.Reclaim, w.cfg.Lease, w.cfg.LeaseMin, w.cfg.Grace = ReclaimRequeueable, 5*time.Minute, time.Minute, 30*time.Second
		w.tick = time.Minute
		for i := range 2 {
			w.addNode(fmt.Sprint("n", i), "r", 8)
		}
		next := make([]int, users)
		var end time.Duration
		for next[3] <= sweeps {
			for u := range users {
				going := false
				for k := range jobs {
					if j := w.job(fmt.Sprintf("%d", 1000*u+10*(next[u]-1)+k)); j != nil && j.State != cluster.Ended {
						going = true
					}
				}
				if going {
					continue
				}
				if next[u]++; u == 3 && next[u] > sweeps {
					end = w.now.Sub(w.begin)
					break
				}
				for k := range jobs {
					j := simJob{takes: takes}
					j.ID, j.User, j.Name, j.Limit, j.Requeueable = fmt.Sprintf("%d", 1000*u+10*(next[u]-1)+k), fmt.Sprint("u", u), "train", 20*time.Hour, true
					j.UID = uint32(1000 + u)
					j.Shape = cluster.Shape{GPUsPerNode: 2}
					j.Hint = cluster.Hint{App: fmt.Sprint("s", next[u]), Runtime: j.takes, Checkpoint: time.Minute}
					if u == 3 {
						j.Hint.Runtime = max(time.Duration(says*float64(j.takes)), time.Second)
						j.Hint.App = fmt.Sprintf("s%d.%d", next[u], k*apps/jobs)
					}
					w.submit(j)
				}
			}
			w.run(w.tick)
		}
		return end
	}
	type world struct {
		takes  time.Duration
		sweeps int
	}
	worlds := []world{{20 * time.Minute, 4}, {20 * time.Minute, 8}, {40 * time.Minute, 4}, {30 * time.Minute, 6}}
	var honest []time.Duration
	for _, world := range worlds {
		honest = append(honest, play(world.takes, world.sweeps, 1, 1))
	}
	for _, lie := range []struct {
		name string
		says float64
		apps int
	}{{"run time x 0.5", .5, 1}, {"run time x 2", 2, 1}, {"run time 0", 0, 1}, {"divided into 2", 1, 2}, {"divided into 4", 1, 4}} {
		var gain float64
		for i, world := range worlds {
			gain += 1 - play(world.takes, world.sweeps, lie.says, lie.apps).Seconds()/honest[i].Seconds()
		}
		gain /= float64(len(worlds))
		t.Logf("%-16s ends %+.1f%% sooner, in the mean", lie.name, 100*gain)
		if gain > 0.1 { // more than chance is worth here
			t.Errorf("%s gains %.1f%%", lie.name, 100*gain)
		}
	}
}
