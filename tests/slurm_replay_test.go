// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"themis/core/sim"
	"themis/tests/privateslurm"
)

// TestReplayOfLiveRun: two users' jobs contend on a real slurmctld, leases run out
// under some; the simulator decides the same on what was recorded, step by step.
func TestReplayOfLiveRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.jsonl")
	toml := strings.NewReplacer(`length = "10s"`, `length = "6s"`, `least = "5s"`, `least = "3s"`, `grace = "3s"`, `grace = "2s"`).Replace(quick)
	c := start(t, privateslurm.Options{Nodes: 2, GPUs: 4, ThemisTOML: toml + fmt.Sprintf("[serve]\nrecord = %q\n", file)})
	script := `step=$(cat step.$SLURM_JOB_ID 2>/dev/null || echo 0)
trap 'echo $step >step.$SLURM_JOB_ID' TERM
while ((step < TAKES)); do sleep 1 & wait $!; step=$((step + 1)); done`
	var ids []string
	submit := func(user string, takes, gpus int) {
		ids = append(ids, sbatch(t, c, user, strings.Replace(script, "TAKES", fmt.Sprint(takes), 1), fmt.Sprintf("--gres=gpu:%d", gpus), "--requeue", "-t5",
			fmt.Sprintf("--comment=themis: runtime=%ds checkpoint=1s", takes)))
	}
	submit("alice", 14, 4)
	submit("alice", 12, 4)
	wait(t, c, ids[1], running)
	submit("alice", 4, 2)
	submit("bob", 4, 4)
	submit("bob", 6, 2)
	submit("bob", 3, 1)
	for _, id := range ids {
		wait(t, c, id, completed)
	}
	if keep := os.Getenv("THEMIS_RECORDING"); keep != "" { // to look at
		raw, _ := os.ReadFile(file)
		if err := os.WriteFile(keep, raw, 0o600); err != nil {
			t.Error(err)
		}
	}
	r := view[sim.Replayed](t, c, "sim", "replay", file)
	if r.Difference != nil || r.Grants <= len(ids) || r.Reclaims == 0 || r.Steps < 50 || r.Skipped != 0 {
		t.Errorf("replayed: %+v", r)
	}
	t.Logf("%d steps, %d grants, %d reclaims", r.Steps, r.Grants, r.Reclaims)

	// One winner altered: the command fails and says where.
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	altered := strings.Replace(string(raw), fmt.Sprintf(`"Job":%q`, ids[3]), `"Job":"77"`, 1)
	if err := os.WriteFile(file, []byte(altered), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Themis("sim", "replay", file)
	if err == nil || !strings.Contains(err.Error(), "is decided otherwise") || !strings.Contains(out, "recorded only: grant of job 77") ||
		!strings.Contains(out, "replayed only: grant of job "+ids[3]) {
		t.Errorf("altered: %v\n%s", err, out)
	}
}
