// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder writes a few small jobs in the form of each trace.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var search, table, rounds strings.Builder
	table.WriteString("experiment-id,job-id,start-time,run-time,num-gpus\n")
	for i := range 12 {
		fmt.Fprintf(&search, `%s{"job_id": "%d", "job_group_id": "%d", "start_time": "0", "total_iterations": "%d", "time_per_iteration": "0.01", "max_parallelism": "4", "cross_slot_slowdown": "1", "cross_machine_slowdown": "0.9", "cross_rack_slowdown": "0.8"}`,
			map[bool]string{true: "[", false: ","}[i == 0], i, i/4, 20000+1000*i)
		fmt.Fprintf(&table, "%d, job%d, 2018-06-16 04:%02d:00, %d, 1\n", i/4, i, 10+i, 1800+600*i)
		fmt.Fprintf(&rounds, "LM (batch size 10)\tcmd\t.\t--steps\t1\t1000\t2\tstatic\t1\t-1\t%d\t%d\n", 1800+600*i, 60*i)
	}
	search.WriteString("]")
	for name, text := range map[string]string{fig19: search.String(), philly: table.String(), shockwave: rounds.String()} {
		file := filepath.Join(dir, traceFiles[name])
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A stop between any two runs loses nothing: the page from the rest of them, half
// of which were kept, is the same.
func TestGoesOn(t *testing.T) {
	traces, dir := folder(t), t.TempDir()
	kept, out := filepath.Join(dir, "runs"), filepath.Join(dir, "out.md")
	page := func() string {
		if err := write(traces, out, kept, true, io.Discard); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := page()
	runs, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	for odd := range 2 {
		var half strings.Builder
		for i, line := range strings.SplitAfter(string(runs), "\n") {
			if i%2 == odd {
				half.WriteString(line)
			}
		}
		if err := os.WriteFile(kept, []byte(half.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if page() != first {
			t.Errorf("the page differs if half of the runs were kept")
		}
	}
}

// The page can be made, has all its figures, and is the same again, also from
// runs that were kept.
func TestQuickPage(t *testing.T) {
	traces := folder(t)
	kept := filepath.Join(t.TempDir(), "runs")
	var pages []string
	for i, runs := range []string{"", kept, kept} {
		out := filepath.Join(t.TempDir(), "docs", "results.md")
		var progress strings.Builder
		if err := write(traces, out, runs, true, &progress); err != nil {
			t.Fatal(err)
		}
		if played := progress.Len() > 0; played != (i < 2) {
			t.Errorf("page %d: runs were played: %v", i, played)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, string(text))
	}
	for i, p := range pages[1:] {
		if p != pages[0] {
			t.Errorf("page %d differs from the first", i+1)
		}
	}
	for n := 1; n <= 8; n++ {
		if !strings.Contains(pages[0], fmt.Sprintf("\n## %d. ", n)) {
			t.Errorf("section %d is missing", n)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!", traces, "| 0.00 (0.00) |"} {
		if strings.Contains(pages[0], bad) {
			t.Errorf("the page has %q:\n%s", bad, pages[0])
		}
	}
	columns := 0
	for _, line := range strings.Split(pages[0], "\n") {
		switch n := strings.Count(line, "|"); {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = n
		case n != columns:
			t.Errorf("a row of %d cells in a table of %d: %s", n-1, columns-1, line)
		}
	}
}

func TestMissingTraces(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		if err := write(dir, filepath.Join(t.TempDir(), "out.md"), "", true, io.Discard); err == nil || !strings.Contains(err.Error(), "hint: make results TRACES=DIR") {
			t.Errorf("folder %q: %v", dir, err)
		}
	}
}

func TestRanks(t *testing.T) {
	for _, s := range []struct {
		x, y []float64
		want float64
	}{
		{[]float64{1, 2, 3}, []float64{10, 20, 90}, 1},
		{[]float64{1, 2, 3}, []float64{3, 2, 1}, -1},
		{[]float64{1, 2, 3, 4}, []float64{2, 4, 1, 3}, 0},
	} {
		if got := ranks(s.x, s.y); got < s.want-1e-9 || got > s.want+1e-9 {
			t.Errorf("ranks of %v and %v: %v, want %v", s.x, s.y, got, s.want)
		}
	}
}
