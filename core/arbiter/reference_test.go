// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"testing"
	"time"

	"themis/core/cluster"
	"themis/core/fairness"
)

// TestLiarsAreFoundOut: after three jobs that take ten times what was declared,
// the fourth declaration is corrected, after a restart too. Another user's is not,
// and saying the truth in the last moment does not launder a run.
func TestLiarsAreFoundOut(t *testing.T) {
	w := newWorld(t.Fatalf)
	w.addNode("n1", "", 8)
	n := 0
	submit := func(uid uint32, takes, says time.Duration) *Job {
		n++
		j := simJob{takes: takes}
		j.ID, j.UID, j.User, j.Name = fmt.Sprint(n), uid, fmt.Sprint("u", uid), fmt.Sprint("run", n)
		j.Shape, j.Hint.Runtime = cluster.Shape{GPUs: 1}, says
		w.submit(j)
		w.run(w.tick)
		return w.arb.jobs[j.ID]
	}
	for range 3 {
		submit(1, 30*time.Minute, 3*time.Minute)
		submit(2, 30*time.Minute, 30*time.Minute)
		w.run(29 * time.Minute)
		w.jobs[len(w.jobs)-2].Hint.Runtime = 30 * time.Minute
		w.run(10 * time.Minute)
	}
	check := func() {
		t.Helper()
		for uid, want := range map[uint32]fairness.Estimate{1: {Total: 50 * time.Minute, Source: fairness.Corrected}, 2: {Total: 5 * time.Minute, Source: fairness.Declared}} {
			got := submit(uid, 50*time.Minute, 5*time.Minute)
			if got.Estimate.Source != want.Source || (got.Estimate.Total-want.Total).Abs() > time.Minute {
				t.Errorf("job %s of user %d: %v, want %v", got.ID, uid, got.Estimate, want)
			}
		}
	}
	check()
	past := w.arb.list()
	w.arb = reborn(w.arb, w.now)
	for _, j := range past { // as the service does with what the ledger kept
		if j.done {
			w.arb.Remember(j.SaveJob())
		}
	}
	check()
	for range 3 * runsKept {
		w.arb.Remember(past[0].SaveJob())
	}
	if n := len(w.arb.said[1].runs); n != runsKept {
		t.Errorf("%d runs are kept of a user, want %d", n, runsKept)
	}
}

// TestPaperReferenceGrowsWhenOthersWait documents why the paper's T_id is not the
// default. A runs for 2 h on one of two GPUs either way. With B and C served
// beside it, an hour each, there are 3 unfinished apps for 1 h and 2 for 1 h: T_id
// = 2 h * 2.5. With B and C kept waiting and a GPU idle it is 2 h * 3, so A's rho
// improves though nobody gained anything.
func TestPaperReferenceGrowsWhenOthersWait(t *testing.T) {
	run := func(ref Reference, wait, restart bool) *App {
		w := newWorld(t.Fatalf)
		w.cfg.Reference, w.cfg.Entity = ref, ByApp
		w.addNode("n1", "", 2)
		for i, takes := range []time.Duration{2 * time.Hour, time.Hour, time.Hour} {
			j := simJob{takes: takes}
			j.ID, j.User, j.Shape = string(rune('A'+i)), "u", cluster.Shape{GPUs: 1}
			j.Hint.Runtime = takes
			w.submit(j)
			w.deaf = wait && i > 0
			w.run(w.tick) // A is the first to start
		}
		w.deaf = false
		for _, j := range w.jobs[1:] {
			if wait {
				j.Blocked = "held"
			}
		}
		w.run(time.Hour + 30*time.Minute)
		if restart {
			w.arb = reborn(w.arb, w.now)
		}
		w.run(31 * time.Minute)
		return w.arb.jobs["A"].App
	}
	const slop = time.Minute // starts and ends fall on ticks
	for _, c := range []struct {
		ref           Reference
		wait, restart bool
		want          time.Duration
	}{
		{ReferencePaper, false, false, 5 * time.Hour},
		{ReferencePaper, true, false, 6 * time.Hour},
		{ReferencePaper, true, true, 6 * time.Hour},
		// Fluid: 2/3 GPU each until B and C end after 1.5 h; A has an hour left.
		{ReferenceFluid, false, false, 2*time.Hour + 30*time.Minute},
		{ReferenceFluid, true, false, 2*time.Hour + 30*time.Minute},
	} {
		a := run(c.ref, c.wait, c.restart)
		if took := a.Ended.Sub(a.Submit); took < 2*time.Hour || took > 2*time.Hour+slop {
			t.Fatalf("A took %s", took)
		}
		if ideal := a.Reference.Sub(a.Submit); (ideal - c.want).Abs() > slop*3 {
			t.Errorf("%s, others wait: %v, restart: %v: T_id %s, want %s", c.ref, c.wait, c.restart, ideal, c.want)
		}
	}
}
