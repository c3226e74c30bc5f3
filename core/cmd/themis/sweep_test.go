// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallTrace is a trace of so many jobs.
func smallTrace(t *testing.T, jobs int) string {
	t.Helper()
	var s strings.Builder
	s.WriteString("id,app,submit_s,runtime_s,gpus\n")
	for i := range jobs {
		fmt.Fprintf(&s, "j%d,a%d,%d,%d,%d\n", i, i/2, 100*i, 600+i*7919%5000, 1<<(i%3))
	}
	path := filepath.Join(t.TempDir(), "small.csv")
	if err := os.WriteFile(path, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// folder is every file of a sweep's folder.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(raw)
	}
	return files
}

func sweepArgs(args ...string) []string { return append([]string{"sim", "sweep"}, args...) }

// Every flag of sim is either an axis or fixed.
func TestSweepKnowsAllFlags(t *testing.T) {
	var got []string
	for _, line := range strings.Split(simCommand(&simFlags{}).Flags().FlagUsages(), "\n") {
		if f := strings.Fields(line); len(f) > 0 {
			got = append(got, strings.TrimPrefix(f[0], "--"))
		}
	}
	if want := slices.Concat(axes, fixed); !slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))) {
		t.Errorf("sim has the flags %v, a sweep knows %v", got, want)
	}
}

func TestSweepGrid(t *testing.T) {
	trace, dir := smallTrace(t, 4), filepath.Join(t.TempDir(), "out")
	nodes := filepath.Join(filepath.Dir(trace), "nodes.csv")
	if err := os.WriteFile(nodes, []byte("name,gpus\na,4\nb,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, sweepArgs(trace, "--out", dir, "--f", "0.5,.8,0.80", "--lease", "5m", "--lease", "300s,10m", "--cluster", "2x4,"+nodes, "--policy", "fifo,srtf")...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSweep(dir, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range s.Cells {
		f := s.Cells[i].Flags
		got = append(got, fmt.Sprint(f["cluster"], " ", f["lease"], " ", f["f"], " ", f["policy"]))
	}
	var want []string
	for _, c := range []string{"2x4", "nodes.csv"} {
		for _, l := range []string{"5m0s", "10m0s"} {
			for _, f := range []string{"0.5", "0.8"} {
				want = append(want, fmt.Sprint(c, " ", l, " ", f, " fifo"), fmt.Sprint(c, " ", l, " ", f, " srtf"))
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("cells are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if lines := strings.Count(out, "\n"); lines != 17 || !strings.Contains(out, "nodes.csv  10m    0.8  srtf") {
		t.Errorf("%d lines:\n%s", lines, out)
	}
	for _, c := range s.Cells {
		if !filepath.IsAbs(c.TracePath) || (c.ClusterPath != "") != (c.Flags["cluster"] == "nodes.csv") {
			t.Errorf("paths of %+v", c)
		}
	}
	// Another content, another name; another place, the same.
	c := s.Cells[0]
	c.TracePath = "elsewhere"
	if c.file() != s.Cells[0].file() {
		t.Error("the file's name depends on where the trace is")
	}
	c.TraceSum = "0"
	if c.file() == s.Cells[0].file() {
		t.Error("the file's name does not depend on the trace")
	}
	raw, err := command(t, sweepArgs("--json", trace, "--out", dir+"2", "--cluster", "2x4", "--f", "0.5,.8", "--policy", "srtf")...)
	var all []played
	if err != nil || json.Unmarshal([]byte(raw), &all) != nil || len(all) != 2 || all[1].Cell.Flags["f"] != "0.8" || all[1].Result.Policies[0].Policy != "srtf" {
		t.Errorf("--json: %v\n%s", err, raw)
	}
}

// What is there and whole is kept; what is not is played again, to the same bytes.
func TestSweepResume(t *testing.T) {
	trace, dir := smallTrace(t, 12), t.TempDir()
	args := sweepArgs(trace, "--cluster", "2x4", "--f", "0.5,0.8", "--seed", "1,2", "--error", "0.3", "--policy", "themis,fifo")
	first, again := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{first, again} {
		if _, err := command(t, append(args, "--out", d)...); err != nil {
			t.Fatal(err)
		}
	}
	want := folder(t, first)
	if got := folder(t, again); !maps.Equal(got, want) || len(want) != 9 {
		t.Fatalf("two runs, %d and %d files, differ", len(got), len(want))
	}
	s, err := openSweep(first, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	path := func(i int) string { return filepath.Join(first, s.Cells[i].file()) }
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range s.Cells {
		if err := os.Chtimes(path(i), old, old); err != nil {
			t.Fatal(err)
		}
	}
	other := want[s.Cells[0].file()]
	for i, text := range map[int]string{1: "", 3: other[:len(other)/2], 4: other} { // 4: of other settings
		if err := os.WriteFile(path(i), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path(6)); err != nil {
		t.Fatal(err)
	}
	if got := s.missing(); !slices.Equal(got, []int{1, 3, 4, 6}) {
		t.Errorf("missing are %v", got)
	}
	// One by its number, as a task of a job array does it.
	for range 2 {
		if _, err := command(t, sweepArgs("--out", first, "--cell", "3")...); err != nil {
			t.Error(err)
		}
	}
	if _, err := command(t, append(args, "--out", first, "--resume")...); err != nil {
		t.Error(err)
	}
	if got := folder(t, first); !maps.Equal(got, want) {
		t.Error("resumed, the files differ")
	}
	for i := range s.Cells {
		st, err := os.Stat(path(i))
		if redone := err == nil && !st.ModTime().Equal(old); err != nil || redone != slices.Contains([]int{1, 3, 4, 6}, i) {
			t.Errorf("cell %d: redone is %v, %v", i, redone, err)
		}
	}
	// A trace that is another by now.
	if err := os.WriteFile(trace, []byte("id,submit_s,runtime_s,gpus\nx,0,1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path(2)); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, sweepArgs("--out", first, "--resume")...); err == nil || exitCode(err) != exitFailed ||
		!strings.Contains(err.Error(), "1 of 8 cells") || !strings.Contains(err.Error(), "cell 2: ") || !strings.Contains(err.Error(), "has changed") || strings.Count(out, "\n") != 8 {
		t.Errorf("changed trace: %v\n%s", err, out)
	}
}

// A cell that fails does not stop the others.
func TestSweepFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	out, err := command(t, sweepArgs(smallTrace(t, 6), "--out", dir, "--cluster", "1x2,2x4", "--policy", "fifo,srtf")...)
	if err == nil || exitCode(err) != exitFailed || !strings.Contains(err.Error(), "cells 0-1: job j2 asks for 4 GPUs") || strings.Count(out, "\n") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSweepUsage(t *testing.T) {
	trace, full := smallTrace(t, 2), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := []string{trace, "--out", filepath.Join(full, "new")}
	for _, args := range [][]string{
		{trace}, {"--out", full}, {trace, "--out", full}, {"--out", full, "--resume"}, {"--out", full, "--cell", "0"}, {"-", "--out", filepath.Join(full, "new")},
		append(out, "--f", "2"), append(out, "--f", "x"), append(out, "--lease", "0s"), append(out, "--jobs", "soft"), append(out, "--policy", "fifo,best"),
		append(out, "--mix", "w9"), append(out, "--on", "yarn"), append(out, "--wait"), append(out, "--cell", "1"),
		append(out, "--on", "slurm", "--sbatch", "--time=5 --gres=gpu:1"), append(out, "--on", "slurm", "--sbatch", "-G 1"),
	} {
		if _, err := command(t, sweepArgs(args...)...); err == nil || exitCode(err) != exitUsage {
			t.Errorf("sweep %v: %v", args, err)
		}
	}
	if _, err := os.Stat(out[2]); err == nil {
		t.Error("a refused sweep left a folder")
	}
	if _, err := command(t, sweepArgs(trace, "--out", full)...); !strings.Contains(err.Error(), "hint: --resume") {
		t.Error(err)
	}
	if _, err := command(t, "sim", trace, "--cluster", "2x4", "--policy", "fifo"); err != nil {
		t.Errorf("sim beside sweep: %v", err)
	}
}

// Stopped midway, only whole files are there.
func TestSweepStopped(t *testing.T) {
	trace, dir := smallTrace(t, 800), filepath.Join(t.TempDir(), "out")
	lists := map[string]*[]string{}
	one := simCommand(&simFlags{})
	for _, a := range axes {
		lists[a] = &[]string{one.Flags().Lookup(a).DefValue}
	}
	*lists["cluster"], *lists["policy"], *lists["seed"] = []string{"4x4"}, []string{"fifo", "themis"}, []string{"1", "2", "3"}
	cells, err := plan([]string{trace}, lists, one)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openSweep(dir, cells, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for len(s.missing()) == len(cells) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	s.local(ctx, s.missing())
	left := s.missing()
	if len(left) == 0 || len(left) == len(cells) {
		t.Errorf("%d of %d cells are left", len(left), len(cells))
	}
	if files := folder(t, dir); len(files) != 1+len(cells)-len(left) {
		t.Errorf("%d cells are done, files are %v", len(cells)-len(left), slices.Collect(maps.Keys(files)))
	}
	if failed := s.local(ctx, left); len(failed) != 0 || !slices.Equal(s.missing(), left) {
		t.Errorf("a cancelled sweep went on: %v", failed)
	}
}

// What is given to sbatch, in arrays no longer than Slurm allows.
func TestSweepSubmit(t *testing.T) {
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "it's 100%")
	for name, text := range map[string]string{
		"scontrol": "echo 'MaxArraySize            = 3'",
		"sbatch":   `n=$(ls "$0".* 2>/dev/null | wc -l); { echo "$SBATCH_GRES$SBATCH_ACCOUNT"; printf '%s\n' "$@"; cat; } >"$0.$n"; echo "7$n;cluster"`,
		"squeue":   "",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("SBATCH_GRES", "gpu:1")
	t.Setenv("SBATCH_ACCOUNT", "mine")
	out, err := command(t, sweepArgs(smallTrace(t, 4), "--out", dir, "--cluster", "2x4", "--policy", "fifo", "--seed", "1,2,3,4,5",
		"--on", "slurm", "--at-once", "2", "--sbatch", "--partition=x --time=1:00:00")...)
	if err != nil || !strings.Contains(out, "job 70,71: 5 cells") || !strings.Contains(out, `--out '`) {
		t.Errorf("%v\n%s", err, out)
	}
	for n, want := range [][]string{
		{"mine\n--parsable\n--partition=x\n--time=1:00:00\n--array=0-2%2\n", "/it's 100%%/log/%A_%a.txt\n#!/bin/sh\n", `/it'\''s 100%' --cell "$((SLURM_ARRAY_TASK_ID + 0))"`},
		{"--dependency=afterany:70\n--array=0-1%2\n", "SLURM_ARRAY_TASK_ID + 3)"},
	} {
		raw, _ := os.ReadFile(fmt.Sprintf("%s/sbatch.%d", bin, n))
		for _, w := range want {
			if !strings.Contains(string(raw), w) {
				t.Errorf("sbatch %d got\n%s\nwant %q", n, raw, w)
			}
		}
	}
	// None of the tasks has run.
	if _, err := command(t, sweepArgs("--out", dir, "--resume", "--on", "slurm", "--wait")...); err == nil || !strings.Contains(err.Error(), "5 of 5 cells") || !strings.Contains(err.Error(), "did not start") {
		t.Error(err)
	}
}

func TestRanges(t *testing.T) {
	for want, n := range map[string][]int{"": nil, "4": {4}, "0-3": {0, 1, 2, 3}, "0-1,3,5-6": {0, 1, 3, 5, 6}} {
		if got := ranges(n); got != want {
			t.Errorf("%v: got %q, want %q", n, got, want)
		}
	}
}
