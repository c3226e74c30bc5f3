// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"themis/bridge"
	"themis/tests/privateslurm"
)

// trainer goes on where its checkpoint is, at the speed of the place it finds itself in,
// and says how far it is, for two minutes and a bit.
const trainer = `
case $SLURM_JOB_NODELIST in n2 | *-*) pace=.004 ;; *) pace=.01 ;; esac
done=$(cat %[1]s 2>/dev/null || echo 0)
for i in $(seq 27); do
  sleep 5
  done=$(awk "BEGIN { print $done + $pace }")
  echo $done >%[1]s
  themis report --progress $done
done
[ "$SLURM_RESTART_COUNT" = 1 ] || sleep 300
`

// TestMeasured: two jobs report their progress, are moved by their nodes being drained, and
// report again. What they did with a GPU of another type, and on two nodes instead of one,
// is what their user's next jobs of the model are reckoned with.
func TestMeasured(t *testing.T) {
	t.Parallel() // it waits more than it computes
	dir, err := os.MkdirTemp("", "themis-measured.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := start(t, privateslurm.Options{Nodes: 5, GPUs: 2, GPUTypes: []string{"h100", "a100", "t4", "t4", "t4"}})
	for _, node := range []string{"n4", "n5"} { // one GPU of each is left
		wait(t, c, sbatch(t, c, "carol", "sleep 900", "--gres=gpu:1", "-w", node, "-t30"), running)
	}
	on := func(id, nodes string) {
		t.Helper()
		if j := wait(t, c, id, running); j["NodeList"] != nodes {
			t.Fatalf("job %s runs on %s, not %s", id, j["NodeList"], nodes)
		}
	}
	types := sbatch(t, c, "alice", fmt.Sprintf(trainer, filepath.Join(dir, "types")), "--gres=gpu:1", "-t30", "--requeue", "-x", "n[3-5]", "--comment=themis: model=mine")
	wide := sbatch(t, c, "bob", fmt.Sprintf(trainer, filepath.Join(dir, "wide")), "--gpus=2", "-N1-2", "-n2", "-t30", "--requeue", "-x", "n[1-2]", "--comment=themis: model=mine")
	on(types, "n2")
	on(wide, "n3")
	time.Sleep(2*time.Minute + 20*time.Second)
	for job, node := range map[string]string{types: "n2", wide: "n3"} {
		run(t, c, "scontrol", "update", "node="+node, "state=drain", "reason=test")
		run(t, c, "scontrol", "requeue", job)
	}
	on(types, "n1")
	on(wide, "n[4-5]")
	time.Sleep(2 * time.Minute)
	wait(t, c, types, completed)
	wait(t, c, wide, completed)
	run(t, c, "scontrol", "update", "node=n[2-3]", "state=resume")

	measured := map[string]bridge.Measured{}
	for _, m := range view[[]bridge.Measured](t, c, "ledger", "--places") {
		measured[m.User] = m
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > .15 {
			t.Errorf("%s: measured %.3f, want about %.3f", what, got, want)
		}
	}
	if m := measured["alice"]; m.Model != "mine" || len(m.Types) != 2 {
		t.Errorf("of alice's model: %+v", m)
	} else {
		for _, f := range m.Types {
			if f.N > 0 {
				near(f.Type+" relative to the other", f.Mean, map[string]float64{"a100": .4, "h100": 2.5}[f.Type])
			}
		}
	}
	if m := measured["bob"]; len(m.Levels) != 4 || m.Levels[3].N != 1 {
		t.Errorf("of bob's model: %+v", m)
	} else {
		near("two nodes relative to one", m.Levels[3].Mean, .4)
	}
	next := sbatch(t, c, "alice", "sleep 300", "--gres=gpu:1", "-t9", "-x", "n[3-5]", "--comment=themis: model=mine")
	on(next, "n1")
	if e := view[bridge.Explain](t, c, "explain", next); e.Types != "h100" || e.Speed <= 1 {
		t.Errorf("its lease is for %q at speed %g", e.Types, e.Speed)
	}
}
