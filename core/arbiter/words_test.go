// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"strings"
	"testing"
	"time"

	"themis/core/cluster"
)

// TestAdviceFitsTheHost: a waiting job's user reads what to type on that host.
func TestAdviceFitsTheHost(t *testing.T) {
	for host, wants := range map[string][2]string{
		"slurm": {`--comment="themis: runtime=2h"`, `--comment="themis: checkpoint=10m"`},
		"yarn":  {"application tag themis:runtime=2h", "application tag themis:checkpoint=10m"},
	} {
		for limit, source := range map[time.Duration]string{time.Hour: "taken from its time limit", 0: "a guess"} {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			a := New(Defaults(), now)
			j := cluster.Job{Host: host, ID: "1", User: "alice", State: cluster.Pending, Submit: now, Limit: limit, AnyNode: true, Shape: cluster.Shape{GPUs: 8}}
			a.Step(now, &cluster.Snapshot{Nodes: []cluster.Node{{Name: "n1", GPUs: []cluster.GPUs{{Total: 4}}}}, Jobs: []cluster.Job{j}})
			e, ok := a.Explain("1")
			advice := strings.Join(e.Advice, "\n")
			for _, want := range append(wants[:], source) {
				if !ok || !strings.Contains(advice, want) {
					t.Errorf("%s: no %q in %q", host, want, advice)
				}
			}
			if host == "yarn" && strings.Contains(advice, "--comment") {
				t.Errorf("yarn: %q", advice)
			}
		}
	}
}
