// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"themis/bridge"
	"themis/tests/privateslurm"
)

// unhurried holds a round when all nodes of a job that has ended are free, and not
// one by one.
var unhurried = strings.Replace(quick, `"100ms"`, `"1500ms"`, 1)

// everybodyBids lets all apps take part in every auction.
var everybodyBids = strings.Replace(unhurried, "[auction]", "[auction]\nf = 0\n", 1)

// contest fills the cluster, lets two users queue up for it, and returns their
// jobs and the round in which both bid.
func contest(t *testing.T, c *privateslurm.Cluster, hint string) (alice, bob string, round bridge.Round) {
	t.Helper()
	blocker := sbatch(t, c, "carol", "sleep 300", "-N2", "--gres=gpu:8", "-t9")
	wait(t, c, blocker, running)
	alice = sbatch(t, c, "alice", "sleep 40", "--array=1-4", "--gres=gpu:4", "-t2", "--comment=themis: runtime=40s")
	bob = sbatch(t, c, "bob", "sleep 40", "--array=1-4", "--gres=gpu:4", "-t2", "--comment=themis: runtime=40s"+hint)
	eventually(t, func() string {
		if s := view[bridge.Status](t, c, "status"); s.Waiting < 8 {
			return fmt.Sprintf("%d jobs wait", s.Waiting)
		}
		return ""
	})
	run(t, c, "scancel", blocker)
	eventually(t, func() string {
		for _, r := range view[[]bridge.Round](t, c, "rounds", "--last", "20") {
			if r.Participants == 2 && r.Free == 16 {
				round = r
				return ""
			}
		}
		return "no round with two bids"
	})
	return alice, bob, round
}

// TestAuctionProven: two equal users win equally and pay alike; the round is
// verified from the ledger, with and without the core; explain says what was
// bid, what it was up against, what was paid and how good the outcome is.
func TestAuctionProven(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 2, ThemisTOML: everybodyBids})
	alice, _, r := contest(t, c, " checkpoint=10s")
	for _, b := range r.Bids {
		if b.Won != 8 || b.Payment < .4 || b.Payment > .6 || b.PaymentLow > b.Payment || b.Gain <= 0 || b.Price <= 0 || b.Source != "declared" {
			t.Errorf("of two equal users %s has %+v", b.App, b)
		}
	}
	id := strconv.FormatUint(r.ID, 10)
	for _, args := range [][]string{{"rounds", id, "--verify"}, {"rounds", id, "--verify", "--ledger", ledgerFile(c)}} {
		if out, err := c.Themis(args...); err != nil || !strings.Contains(out, "round "+id+" holds: 2 bids, 2 nodes") {
			t.Errorf("themis %v: %v\n%s", args, err, out)
		}
	}
	verdict := view[struct {
		Holds          bool
		Welfare, Bound float64
	}](t, c, "rounds", id, "--verify")
	if !verdict.Holds || verdict.Bound < verdict.Welfare-1e-6 {
		t.Errorf("the verdict is %+v", verdict)
	}
	if one := view[[]bridge.Round](t, c, "rounds", id); len(one) != 1 || one[0].ID != r.ID || len(one[0].Bids) != 2 {
		t.Errorf("rounds %s shows %+v", id, one)
	}
	for _, args := range [][]string{{"rounds", "999999"}, {"rounds", "999999", "--verify"}, {"rounds", "x", "--verify"}, {"rounds", "--verify"}} {
		if out, err := c.Themis(args...); err == nil {
			t.Errorf("themis %v: %s", args, out)
		}
	}
	waiting := ""
	for task := 1; task <= 4; task++ {
		if j, err := c.Job(fmt.Sprintf("%s_%d", alice, task)); err == nil && j["JobState"] == "PENDING" {
			waiting = fmt.Sprintf("%s_%d", alice, task)
		}
	}
	text, err := c.Themis("explain", waiting)
	for _, want := range []string{"last auction round " + id, "bid          its next job would gain it", "payment      keeps 0.5", "slack", "outcome      the best there is",
		// Alice's jobs declare no checkpoint: they cannot pay in lease time.
		"owes         "} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("explain %s: %v, no %q in\n%s", waiting, err, want, text)
		}
	}
	// Debts outlive slurmctld and the core.
	if err := c.StopController(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartController(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		out, err := c.Themis("explain", alice+"_4")
		if err != nil || !strings.Contains(out, "owes         ") {
			return fmt.Sprintf("explain: %v\n%s", err, out)
		}
		return ""
	})
	checkLeases(t, c, 8)
}

// TestPaperForm: T_id by the paper's definition and payments in whole gangs, on
// the real thing: jobs flow and rounds hold.
func TestPaperForm(t *testing.T) {
	toml := strings.Replace(everybodyBids, "f = 0\n", "f = 0\npayment = \"gpus\"\n", 1) + "\n[fairness]\nreference = \"paper\"\n"
	c := start(t, privateslurm.Options{Nodes: 2, ThemisTOML: toml})
	alice, bob, r := contest(t, c, "")
	if out, err := c.Themis("rounds", strconv.FormatUint(r.ID, 10), "--verify"); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	wait(t, c, alice+"_1", completed)
	wait(t, c, bob+"_1", completed)
}

// TestMoldable: a job of one to three nodes that says how much faster it is on
// more of them gets them; one that gains nothing by a third node does without.
func TestMoldable(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 3})
	scales := sbatch(t, c, "alice", "sleep 300", "-N1-3", "--gres=gpu:8", "-t9", "--comment=themis: speedup=8:1,16:1.9,24:2.7")
	if j := wait(t, c, scales, running); j["NumNodes"] != "3" {
		t.Errorf("a job that scales runs on %s nodes", j["NumNodes"])
	}
	run(t, c, "scancel", scales)
	does := sbatch(t, c, "bob", "sleep 300", "-N1-3", "--gres=gpu:8", "-t9", "--comment=themis: speedup=8:1,16:1.9,24:1.9")
	if j := wait(t, c, does, running); j["NumNodes"] != "2" {
		t.Errorf("a job that gains nothing by a third node runs on %s", j["NumNodes"])
	}
	if out, err := c.Sbatch("bob", "true", "--gres=gpu:1", "--comment=themis: speedup=1:1,2:.5"); err == nil {
		t.Errorf("a curve that falls is taken: %s", out)
	}
}

// TestTypes: of two jobs that name no type the one that is faster on a100 gets
// them, though the other was first; a typed request gets its type, whatever it
// says of speeds; and MIG slices go to those who ask for them, never as whole GPUs.
func TestTypes(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 3, GPUTypes: []string{"v100", "a100", "a100_1g.5gb"}, ThemisTOML: everybodyBids})
	on := func(id, node string) {
		t.Helper()
		if j := wait(t, c, id, running); j["NodeList"] != node {
			t.Errorf("job %s runs on %s, not %s", id, j["NodeList"], node)
		}
	}
	blocker := sbatch(t, c, "carol", "sleep 300", "-N2", "--gres=gpu:8", "-t9")
	wait(t, c, blocker, running)
	bob := sbatch(t, c, "bob", "sleep 300", "--gres=gpu:8", "-t9")
	alice := sbatch(t, c, "alice", "sleep 300", "--gres=gpu:8", "-t9", "--comment=themis: speed=a100:1,v100:.45")
	eventually(t, func() string {
		if s := view[bridge.Status](t, c, "status"); s.Waiting != 2 {
			return fmt.Sprintf("%d jobs wait", s.Waiting)
		}
		return ""
	})
	if out, err := c.Themis("explain", bob); err != nil || !strings.Contains(out, "a slice is not a whole GPU") {
		t.Errorf("explain %s: %v\n%s", bob, err, out)
	}
	run(t, c, "scancel", blocker)
	on(alice, "n2")
	on(bob, "n1")
	if e := view[bridge.Explain](t, c, "explain", alice); e.Types != "a100" || e.Speed != 1 {
		t.Errorf("its lease is for %q at speed %g", e.Types, e.Speed)
	}
	run(t, c, "scancel", alice, bob)
	typed := sbatch(t, c, "alice", "sleep 300", "--gres=gpu:v100:4", "-t9", "--comment=themis: speed=a100:1,v100:.45")
	on(typed, "n1")
	if e := view[bridge.Explain](t, c, "explain", typed); e.Types != "v100" || e.Speed != .45 {
		t.Errorf("its lease is for %q at speed %g", e.Types, e.Speed)
	}
	slice := sbatch(t, c, "bob", "sleep 300", "--gres=gpu:a100_1g.5gb:2", "-t9")
	on(slice, "n3")
	eventually(t, func() string {
		out, err := c.Themis("status")
		if err != nil || !strings.Contains(out, "types: a100 0 of 8 in use, a100_1g.5gb 2 of 8 in use, v100 4 of 8 in use\n") {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	if out, err := c.Sbatch("bob", "true", "--gres=gpu:1", "--comment=themis: speed=a100"); err == nil || !strings.Contains(out+err.Error(), "speed=a100:1,v100:.45") {
		t.Errorf("a malformed speed is answered by %v: %s", err, out)
	}
}
