// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"themis/core/arbiter"
	"themis/core/cluster"
	"themis/core/fairness"
)

// TestLearnedComesBack: what references and estimates are made of survives a
// restart, and an app of an older ledger is read without it.
func TestLearnedComesBack(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := arbiter.New(arbiter.Defaults(), now)
	job := cluster.Job{ID: "1", UID: 7, User: "u", AnyNode: true, Shape: cluster.Shape{NodesMin: 1, GPUs: 1}, Hint: cluster.Hint{Runtime: time.Hour}}
	for _, app := range []string{"x", "y"} { // y comes when x has been alone for a minute
		job.ID, job.Hint.App = app, app
		now = now.Add(time.Minute)
		d := a.Step(now, &cluster.Snapshot{Jobs: []cluster.Job{job}})
		for _, x := range d.Apps {
			x.Gone = fairness.Size{Work: 9, Par: 3, Longest: 3 * time.Second}
		}
		if err := l.Write(a, &d, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, old := range []bool{false, true} {
		if old {
			if _, err := l.db.Exec("UPDATE app SET fluid = json_remove(fluid, '$.crowd_app_s', '$.gone')"); err != nil {
				t.Fatal(err)
			}
		}
		s, _, err := l.Load(now)
		if err != nil || len(s.Apps) != 2 || len(s.Jobs) != 2 {
			t.Fatalf("%d apps and %d jobs came back: %v", len(s.Apps), len(s.Jobs), err)
		}
		crowd, gone := 60.0, fairness.Size{Work: 9, Par: 3, Longest: 3 * time.Second}
		if old {
			crowd, gone = 0, fairness.Size{}
		}
		if y := s.Apps[1]; y.App.Crowd != crowd || y.App.Gone != gone || y.Fluid.Entity != "u" || y.Fluid.Left != 3600 {
			t.Errorf("older ledger: %v: %+v, want a crowd of %g and %v gone", old, y, crowd, gone)
		}
		if s.IDs.Crowd != 60 || s.Jobs[1].Declared != time.Hour {
			t.Errorf("%g app-seconds, declared %s", s.IDs.Crowd, s.Jobs[1].Declared)
		}
	}
}
