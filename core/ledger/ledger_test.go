// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"themis/core/arbiter"
	"themis/core/cluster"
	"themis/core/fairness"
)

func open(t *testing.T) *Ledger {
	t.Helper()
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestLearnedComesBack: what references and estimates are made of survives a
// restart, and an app of an older ledger is read without it.
func TestLearnedComesBack(t *testing.T) {
	l := open(t)
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

// TestPast: what an ended job made of its GPUs and what it waited for is kept, with its
// leases, the newest first; others' jobs are not shown to an owner. So are measured places.
func TestPast(t *testing.T) {
	l := open(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := arbiter.New(arbiter.Defaults(), now)
	node := cluster.Node{Name: "n1", GPUs: []cluster.GPUs{{Total: 4}}}
	var jobs []cluster.Job
	for i := range 3 {
		jobs = append(jobs, cluster.Job{ID: string(rune('1' + i)), UID: uint32(7 + i%2), User: "u", AnyNode: true,
			Shape: cluster.Shape{NodesMin: 1, GPUs: 1}, Hint: cluster.Hint{Runtime: time.Hour}})
	}
	step := func(after time.Duration) {
		now = now.Add(after)
		d := a.Step(now, &cluster.Snapshot{Nodes: []cluster.Node{node}, Jobs: jobs})
		d.Places = map[arbiter.Place]arbiter.Measured{{User: "u", Model: "m"}: {Levels: [4]arbiter.Spread{cluster.Rack: {N: 1, Mean: .5}}, Base: "a100", Types: map[string]arbiter.Spread{"v100": {N: 2, Mean: .4}}}}
		if err := l.Write(a, &d, 0); err != nil {
			t.Fatal(err)
		}
	}
	use := func(busy float64) {
		node.Use = cluster.Use{Until: now, Of: time.Minute, GPUs: []cluster.GPUUse{{Device: 3, Busy: busy}}}
	}
	use(0)
	step(0)
	step(5 * time.Second) // the auction
	for i := range jobs {
		jobs[i].State, jobs[i].Start, jobs[i].On, jobs[i].Devices = cluster.Running, now, []cluster.Share{{Node: "n1", GPUs: 1}}, []uint64{1 << (3 - i)}
	}
	step(0)
	now = now.Add(time.Minute)
	use(.25)
	step(0)
	for i := range 2 { // 1 and 2, the third runs on
		jobs[i].State, jobs[i].Outcome, jobs[i].End = cluster.Ended, cluster.Completed, now
		step(time.Second)
	}
	past, err := l.Past("", 10, nil)
	if err != nil || len(past) != 2 || past[0].Job.ID != "2" || past[1].Job.ID != "1" {
		t.Fatalf("%+v, %v", past, err)
	}
	p := past[1]
	if p.Use != (arbiter.Use{Seen: 60, Busy: 15}) || p.Waited.Auction != 5*time.Second || len(p.Leases) != 1 || p.Leases[0].Ended.Sub(p.Leases[0].Started) < time.Minute {
		t.Errorf("job 1: %+v", p)
	}
	if past[0].Use != (arbiter.Use{}) {
		t.Errorf("job 2, whose GPU nobody looked at: %+v", past[0].Use)
	}
	for _, c := range []struct {
		job   string
		limit int
		owner uint32
		want  int
	}{{"", 1, 0, 1}, {"1", 10, 0, 1}, {"3", 10, 0, 0}, {"", 10, 8, 1}, {"1", 10, 8, 0}} {
		owner := &c.owner
		if c.owner == 0 {
			owner = nil
		}
		if got, err := l.Past(c.job, c.limit, owner); err != nil || len(got) != c.want {
			t.Errorf("%+v: %d jobs, %v", c, len(got), err)
		}
	}
	s, _, err := l.Load(now)
	if f := s.Places[arbiter.Place{User: "u", Model: "m"}]; err != nil || f.Levels[cluster.Rack] != (arbiter.Spread{N: 1, Mean: .5}) || f.Base != "a100" || f.Types["v100"].N != 2 {
		t.Errorf("places: %+v, %v", s.Places, err)
	}
	var third arbiter.SavedJob
	for _, j := range s.Jobs {
		if j.Job.ID == "3" {
			third = j
		}
	}
	if third.Waited.Auction != 5*time.Second {
		t.Errorf("job 3, which goes on: %+v", third.Waited)
	}
}
