// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"themis/tests/privateslurm"
)

// TestSweepOnSlurm: a sweep as a job array has the bytes of one on this machine,
// also when a task is cancelled and a result lost on the way.
func TestSweepOnSlurm(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 2})
	jobs := filepath.Join(c.Dir, "jobs")
	var rows strings.Builder
	rows.WriteString("id,app,submit_s,runtime_s,gpus\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "j%d,a%d,%d,%d,%d\n", i, i/2, 150*i, 900+i*7919%5000, 1<<(i%4))
	}
	if err := os.WriteFile(filepath.Join(jobs, "trace.csv"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	alice := c.As("alice")
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	grid := []string{"sim", "sweep", "trace.csv", "--cluster", "4x4", "--f", "0.5,0.8", "--lease", "5m,10m", "--policy", "themis"}
	sweep := func(args ...string) string {
		t.Helper()
		out, err := alice.Run(ctx, "themis", args...)
		if err != nil {
			t.Fatalf("themis %v: %v\n%s", args, err, out)
		}
		return out
	}
	table := sweep(append(grid, "--out", "here")...)
	want := results(t, filepath.Join(jobs, "here"))
	if len(want) != 4 || strings.Count(table, "\n") != 5 {
		t.Fatalf("%d results\n%s", len(want), table)
	}

	// One task at a time; the last is cancelled before its turn.
	out := sweep(append(grid, "--out", "there", "--on", "slurm", "--at-once", "1", "--sbatch", "--time=5 --hold")...)
	var id string
	if _, err := fmt.Sscanf(out, "submitted job %s", &id); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	id = strings.TrimSuffix(id, ":")
	if j, err := c.Job(id); err != nil || j["NumCPUs"] != "1" && j["NumCPUs"] != "1-1" || strings.Contains(j["ReqTRES"]+j["TresPerNode"], "gpu") {
		t.Errorf("the array is %v, %v", j, err)
	}
	run(t, c, "scancel", id+"_3")
	run(t, c, "scontrol", "release", id)
	eventually(t, func() string {
		if n := len(results(t, filepath.Join(jobs, "there"))); n != 3 {
			return fmt.Sprintf("%d results:\n%s", n, run(t, c, "squeue"))
		}
		return ""
	})
	lost := slices.Sorted(maps.Keys(want))[0]
	if err := os.Remove(filepath.Join(jobs, "there", lost)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	begin := time.Now()
	again := sweep("sim", "sweep", "--out", "there", "--resume", "--on", "slurm", "--wait")
	t.Logf("the array of what was missing took %v", time.Since(begin).Round(time.Second))
	if again != table {
		t.Errorf("the table differs:\n%s\n%s", again, table)
	}
	if got := results(t, filepath.Join(jobs, "there")); !maps.Equal(got, want) {
		t.Errorf("results differ: %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}

	// A task that fails says why.
	if err := os.WriteFile(filepath.Join(jobs, "trace.csv"), []byte(rows.String()+"x,y,1,1,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(jobs, "there", lost)); err != nil {
		t.Fatal(err)
	}
	out, err := alice.Run(ctx, "themis", "sim", "sweep", "--out", "there", "--resume", "--on", "slurm", "--wait")
	if err == nil || !strings.Contains(err.Error(), "1 of 4 cells") || !strings.Contains(err.Error(), "has changed") || strings.Count(out, "\n") != 4 {
		t.Errorf("with another trace: %v\n%s", err, out)
	}
}

// results are the files of a sweep's cells.
func results(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || e.Name() == "sweep.json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(raw)
	}
	return files
}
