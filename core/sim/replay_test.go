// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"themis/bridge/pb"
	"themis/core/service"
	"themis/core/sim"
)

// record runs a core on two nodes of four GPUs for a moment. Jobs of three users
// run for some steps, under leases of some others, and are requeued when told.
func record(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	cfg := service.DefaultConfig()
	cfg.Auction.Settle, cfg.Lease.Grace, cfg.Lease.Restart = 0, 0, 0
	cfg.Lease.Length, cfg.Lease.Least = service.Duration(40*time.Millisecond), service.Duration(20*time.Millisecond)
	cfg.Serve.Record = filepath.Join(dir, "run.jsonl")
	s, err := service.Open(cfg, filepath.Join(dir, "ledger"), nil, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	snap := &pb.Snapshot{Host: "slurm", Nodes: []*pb.Node{{Name: "n1", Gpus: []*pb.GPUs{{Total: 4}}}, {Name: "n2", Gpus: []*pb.GPUs{{Total: 4}}}}}
	left := map[string]int{}
	jobs := map[string]*pb.Job{}
	for step := range 100 {
		if step%4 == 0 && step < 48 {
			i := step / 4
			j := &pb.Job{Id: fmt.Sprint(1 + i), Uid: uint32(i % 3), User: "abc"[i%3 : i%3+1], Name: "train", SubmitS: time.Now().Unix(), NodesMin: 1,
				GpusPerNode: uint32(2 + 2*(i%2)), AnyNode: true, LimitS: 600, Requeueable: true, Comment: fmt.Sprintf("themis: runtime=%ds checkpoint=1s", 1+i)}
			snap.Jobs = append(snap.Jobs, j)
			jobs[j.Id], left[j.Id] = j, 6+5*(i%4)
		}
		for _, j := range snap.Jobs {
			if j.State != pb.Job_RUNNING {
				continue
			}
			if left[j.Id]--; left[j.Id] == 0 {
				snap.Nodes[j.On[0].Node].Gpus[0].Used -= j.GpusPerNode
				j.State, j.Outcome, j.EndS, j.On = pb.Job_ENDED, pb.Job_COMPLETED, time.Now().Unix(), nil
			}
		}
		d, err := s.Observe(context.Background(), snap)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Reclaims {
			if j := jobs[r.Job]; r.Requeue && j.State == pb.Job_RUNNING {
				snap.Nodes[j.On[0].Node].Gpus[0].Used -= j.GpusPerNode
				j.State, j.On, j.Restarts = pb.Job_PENDING, nil, j.Restarts+1
			}
		}
		for _, g := range d.Grants {
			if j := jobs[g.Job]; j.State == pb.Job_PENDING {
				node := uint32(g.Nodes[0][1] - '1')
				snap.Nodes[node].Gpus[0].Used += j.GpusPerNode
				j.State, j.StartS, j.On = pb.Job_RUNNING, time.Now().Unix(), []*pb.Share{{Node: node, Gpus: j.GpusPerNode}}
			}
		}
		time.Sleep(8 * time.Millisecond)
	}
	s.Close()
	raw, err := os.ReadFile(cfg.Serve.Record)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestReplay(t *testing.T) {
	raw := record(t)
	for range 10 { // no order of a map shows
		r, err := sim.Replay(bytes.NewReader(raw))
		if err != nil || r.Difference != nil || r.Steps != 100 || r.Grants < 12 || r.Reclaims == 0 {
			t.Fatalf("%+v %+v %v", r, r.Difference, err)
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n")
	restored := strings.Replace(lines[0], `"restored":false`, `"restored":true`, 1)
	last := len(lines) - 1
	play := func(lines ...string) (*sim.Replayed, error) {
		return sim.Replay(strings.NewReader(strings.Join(lines, "")))
	}
	edit := func(n int, old, new string) []string {
		out := append([]string{}, lines...)
		if out[n] = strings.Replace(out[n], old, new, 1); out[n] == lines[n] {
			t.Fatalf("line %d has no %s: %s", n+1, old, lines[n])
		}
		return out
	}

	t.Run("another winner is found and named", func(t *testing.T) {
		for n, l := range lines {
			if !strings.Contains(l, `"Job":"5"`) { // the first grant of job 5
				continue
			}
			r, err := play(edit(n, `"Job":"5"`, `"Job":"55"`)...)
			if err != nil || r.Difference == nil || r.Difference.Line != n+1 || r.Difference.Step != n || len(r.Difference.Want) != 1 || len(r.Difference.Got) != 1 ||
				!strings.HasPrefix(r.Difference.Want[0], "grant of job 55 on n") || !strings.HasPrefix(r.Difference.Got[0], "grant of job 5 on n") {
				t.Errorf("%+v %+v %v", r, r.Difference, err)
			}
			return
		}
	})
	t.Run("another configuration decides otherwise", func(t *testing.T) {
		if r, err := play(edit(0, `"Lease":40000000`, `"Lease":400000000`)...); err != nil || r.Difference == nil {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("the last line may be cut short", func(t *testing.T) {
		cut := lines[last][:len(lines[last])/2]
		for _, after := range [][]string{{cut}, {cut + "\n"}, {cut + "\n", restored, lines[1]}} {
			r, err := play(append(append([]string{}, lines[:last]...), after...)...)
			if err != nil || r.Difference != nil || r.Steps != 99 || r.Skipped != len(after)/2 {
				t.Errorf("%+v %v", r, err)
			}
		}
	})
	t.Run("a second core from an empty ledger", func(t *testing.T) {
		if r, err := play(append(append([]string{}, lines...), append([]string{"\n"}, lines...)...)...); err != nil || r.Steps != 200 || r.Difference != nil {
			t.Errorf("%+v %v", r, err)
		}
	})
	for want, in := range map[string][]string{
		"line 1: not a recording":                  {"hello\n"},
		"line 1: json: unknown field":              {`{"seats":3}` + "\n"},
		"line 3: invalid character":                append([]string{lines[0], lines[1], "{nonsense\n"}, lines[2:]...),
		"line 2: cut short":                        {lines[0], lines[1][:50] + "\n", lines[2]},
		"line 1: no configuration":                 lines[1:],
		"line 2: a step before the first":          {lines[0], `{"time":"2026-01-01T00:00:00Z"}`},
		"line 2: a step without its time":          {lines[0], "{}"},
		"no step is recorded":                      {lines[0]},
		"went on from a ledger that was not empty": {restored, lines[1]},
	} {
		if r, err := play(in...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v %v, want %q", r, err, want)
		}
	}
	if _, err := play(); err == nil {
		t.Error("an empty file was taken")
	}
}
