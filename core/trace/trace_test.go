// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestFiles reads small files of every form, odd rows kept. -rewrite writes what
// is read anew.
func TestFiles(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Base(path) == "fuzz" {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var file, spec string
			var o Options
			d.MaybeScanArgs(t, "file", &file)
			d.MaybeScanArgs(t, "spec", &spec)
			d.MaybeScanArgs(t, "format", &o.Format)
			o.Lenient = d.HasArg("lenient")
			switch d.Cmd {
			case "read":
				return show(Read(strings.NewReader(d.Input), file, o))
			case "open":
				return showCluster(OpenCluster(spec))
			case "nodes":
				return showCluster(ReadCluster(strings.NewReader(d.Input), file))
			}
			t.Fatalf("no command %s", d.Cmd)
			return ""
		})
	})
}

func show(tr *Trace, err error) string {
	if err != nil {
		return fmt.Sprintf("error: %s\n", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", tr.Format, tr.Name)
	if !tr.Start.IsZero() {
		fmt.Fprintf(&b, " from %s", tr.Start.Format(time.DateTime))
	}
	b.WriteByte('\n')
	for _, j := range tr.Jobs {
		fmt.Fprintf(&b, "%s: app %s, at %s for %s on %d", j.ID, j.App, j.Submit, j.Runtime, j.GPUs)
		for _, f := range []struct {
			what string
			is   any
			have bool
		}{
			{"full", j.Full, j.Full != j.Runtime}, {"limit", j.Limit, j.Limit > 0}, {"user", j.User, j.User != ""},
			{"account", j.Account, j.Account != ""}, {"name", j.Name, j.Name != ""}, {"model", j.Model, j.Model != ""},
			{"place", j.Place, len(j.Place) > 0}, {"elastic", j.Elastic, j.Elastic},
		} {
			if f.have {
				fmt.Fprintf(&b, ", %s %v", f.what, f.is)
			}
		}
		b.WriteByte('\n')
	}
	for _, s := range tr.Skipped {
		fmt.Fprintf(&b, "skipped %d: %s\n", s.Line, s.Why)
	}
	for _, n := range tr.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func showCluster(c *Cluster, err error) string {
	if err != nil {
		return fmt.Sprintf("error: %s\n", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d GPUs\n", c.Name, c.GPUs())
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "%s: rack %q, %v, %d CPUs, %d MiB\n", n.Name, n.Rack, n.GPUs, n.CPUs, n.MemMiB)
	}
	return b.String()
}

// TestNoText has what no transcript can hold.
func TestNoText(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte("id,submit_s,runtime_s,gpus\na,0,1,1\n"))
	w.Close()
	tr, err := Read(bytes.NewReader(z.Bytes()), "jobs.csv.gz", Options{})
	if err != nil || tr.Name != "jobs" || len(tr.Jobs) != 1 {
		t.Errorf("gzip: %v, %v", tr, err)
	}
	for in, want := range map[string]string{
		z.String()[:z.Len()-12]:                      "x: is broken as a gzip file: unexpected EOF",
		"\x1f\x8bgarbage!":                           "x: is broken as a gzip file: gzip: invalid header",
		"\x89PNG\r\n\x1a\n\x00\x00":                  "x: is not text\nhint: " + ourForm,
		"\xef\xbb\xbf \n":                            "x: is empty\nhint: " + ourForm,
		"\xef\xbb\xbfid,submit_s,runtime_s,gpus\r\n": "x: has no job\nhint: " + ourForm,
	} {
		_, err := Read(strings.NewReader(in), "x", Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %T is no *Error", in, err)
		}
	}
}

// TestHostileSizes are small files that ask for much.
func TestHostileSizes(t *testing.T) {
	defer func(most int) { jobsMost = most }(jobsMost)
	jobsMost = 3 * slsCopies
	job := `{"job.start.ms": 0, "job.end.ms": 9, "job.count": 10000, "job.tasks": [{"container.yarn.io/gpu": 1}]}`
	if _, err := Read(strings.NewReader(strings.Repeat(job, jobsMost/slsCopies+1)), "x", Options{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("too many jobs: %v", err)
	}
	for _, text := range []string{
		"NodeName=" + strings.Repeat("n", 1000) + "[1-100000] Gres=gpu:1\n",
		strings.Repeat("NodeName=n[1-60000]\n", 3),
		"NodeName=n1 Gres=gpu:1\nSwitchName=s Nodes=a[1-100000],b[1-100000]\n",
	} {
		if _, err := ReadCluster(strings.NewReader(text), "x"); err == nil {
			t.Errorf("%.40s...: no error", text)
		}
	}
}

func TestFormats(t *testing.T) {
	for i, line := range Formats() {
		f := formats()[i]
		if f.about == "" || f.form == "" || !strings.HasPrefix(line, f.name+" ") {
			t.Errorf("%s is not described: %q", f.name, line)
		}
	}
}

// TestWhole reads the traces of others in full.
func TestWhole(t *testing.T) {
	dir := os.Getenv("THEMIS_TRACES")
	if dir == "" {
		t.Skip("THEMIS_TRACES does not name the folder of traces")
	}
	for _, c := range []struct {
		path, format  string
		jobs, apps    int
		hours, within float64 // GPU-hours; 0: not known
	}{
		{"themis/offline_hyperdrive_trace_workload.json", "hyperdrive", 488, 21, 2084.3, .2},
		{"themis/hyperdrive_trace_workload.json", "hyperdrive", 488, 21, 2084.3, .2},
		{"themis/online_workload_40network.json", "hyperdrive", 113, 5, 561.3, .2},
		{"themis/online_workload_comparison.json", "hyperdrive", 113, 5, 0, 0},
		{"themis/philly_hyperdrive_workload.csv", "hyperdrive-csv", 4697 - 2, 84, 0, 0},
		{"philly/philly.csv", "philly", 82247, 82247, 0, 0},
		{"shockwave/120_multigpu_dynamic.trace", "shockwave", 120, 120, 197.6, .1},
		{"elasticflow/raw-traces.tar.gz:cluster01", "elasticflow", 1595, 1595, 0, 0},
	} {
		tr, err := Open(filepath.Join(dir, c.path), Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		apps, hours := map[string]bool{}, 0.0
		for i := range tr.Jobs {
			apps[tr.Jobs[i].App] = true
			hours += tr.Jobs[i].Work() / 3600
		}
		if tr.Format != c.format || len(tr.Jobs) != c.jobs || len(apps) != c.apps || c.hours > 0 && math.Abs(hours-c.hours) > c.within {
			t.Errorf("%s: %s, %d jobs of %d apps, %.2f GPU-hours", c.path, tr.Format, len(tr.Jobs), len(apps), hours)
		}
		holds(t, tr)
		t.Logf("%s: %.1f GPU-hours, %d notes", c.path, hours, len(tr.Notes))
	}
	all := 0
	for n := 1; n <= 10; n++ {
		tr, err := Open(filepath.Join(dir, fmt.Sprintf("elasticflow/raw-traces.tar.gz:cluster%02d", n)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		all += len(tr.Jobs)
	}
	if all != 69351 {
		t.Errorf("elasticflow: %d jobs in all", all)
	}
	for path, want := range map[string]string{
		"elasticflow/raw-traces.tar.gz":           "raw-traces.tar.gz:cluster10",
		"elasticflow/raw-traces.tar.gz:cluster11": "it has cluster10.csv",
		"philly/philly.csv:x":                     "is no archive",
		"philly":                                  "is a folder",
		"philly/none":                             "no such file",
		"alibaba/openb_node_list_gpu_node.csv":    "list of nodes",
		"gavel/physical_cluster_throughputs.json": "throughputs",
		"shockwave/tacc_throughputs.json":         "throughputs",
	} {
		if _, err := Open(filepath.Join(dir, path), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	c, err := OpenCluster(filepath.Join(dir, "alibaba/openb_node_list_gpu_node.csv"))
	if err != nil || len(c.Nodes) != 1213 || c.GPUs() != 6212 {
		t.Errorf("alibaba: %d nodes, %v", len(c.Nodes), err)
	}
}

// holds checks what every trace promises.
func holds(t *testing.T, tr *Trace) {
	t.Helper()
	seen := map[string]bool{}
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		switch {
		case j.ID == "" || j.App == "" || seen[j.ID]:
			t.Fatalf("job %d: id %q or app %q", i, j.ID, j.App)
		case j.Runtime <= 0 || j.Runtime > timeMost || j.Full < j.Runtime || j.Full > timeMost || j.Limit < 0 || j.Limit > timeMost:
			t.Fatalf("%s: run time %s, full %s, limit %s", j.ID, j.Runtime, j.Full, j.Limit)
		case j.GPUs < 1 || j.GPUs > gpusMost:
			t.Fatalf("%s: %d GPUs", j.ID, j.GPUs)
		case j.Submit < 0 || j.Submit > timeMost || i == 0 && j.Submit != 0 || i > 0 && j.Submit < tr.Jobs[i-1].Submit:
			t.Fatalf("%s: submitted at %s", j.ID, j.Submit)
		case !printable(j.Name + j.User + j.Account + j.App + j.ID + j.Model):
			t.Fatalf("%q cannot be printed", j.ID)
		}
		for k, s := range j.Place {
			if !(s > 0 && s <= 1) || k > 0 && s > j.Place[k-1] {
				t.Fatalf("%s: place %v", j.ID, j.Place)
			}
		}
		seen[j.ID] = true
	}
	if len(tr.Jobs) == 0 {
		t.Fatal("no jobs")
	}
}

// FuzzRead: no file makes a reader panic, and what is read keeps its promises.
func FuzzRead(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*")
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			continue // the folder of fuzz findings
		}
		for _, part := range strings.Split(string(text), "\n----\n") {
			if _, input, ok := strings.Cut(part, "file="); ok {
				_, input, _ = strings.Cut(input, "\n")
				f.Add(input, true)
				f.Add(input, false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, lenient bool) {
		for _, format := range append(formats(), format{}) {
			tr, err := Read(strings.NewReader(text), "x", Options{Format: format.name, Lenient: lenient})
			if err == nil {
				holds(t, tr)
				if !lenient && len(tr.Skipped) > 0 {
					t.Fatal("skipped without being asked to")
				}
			}
		}
		if c, err := ReadCluster(strings.NewReader(text), "x"); err == nil && c.GPUs() < 1 {
			t.Fatal("no GPUs")
		}
	})
}
