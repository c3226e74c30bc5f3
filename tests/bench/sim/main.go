// SPDX-License-Identifier: Apache-2.0

// Command sim measures `themis sim`: wall time, events per second and memory on
// one core, beside simulators of others on the same trace and cluster in the
// same run, and on a year's jobs of Philly.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// lease of ours and round of others: what Gavel's simulator uses unless told.
const lease = 6 * time.Minute

func main() {
	o := options{}
	flag.StringVar(&o.out, "out", "build/bench", "folder for sim.txt, traces and logs")
	flag.StringVar(&o.bin, "bin", "build/bin/themis", "the themis command")
	flag.StringVar(&o.traces, "traces", os.Getenv("TRACES"), "folder with philly/philly.csv and shockwave/120_multigpu_dynamic.trace (default $TRACES)")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "what one run may take; longer ones are killed")
	flag.IntVar(&o.jobs, "jobs", 1000, "jobs of the generated trace")
	flag.IntVar(&o.runs, "runs", 3, "runs of which the median counts, for those under 10 s")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "sim: "+err.Error())
		os.Exit(1)
	}
}

type options struct {
	out, bin, traces string
	limit            time.Duration
	jobs, runs       int
}

// workload is a trace on a cluster of equal nodes.
type workload struct {
	name, path  string
	nodes, gpus int // gpus of each node
	policies    []string
}

func (w *workload) cluster() string { return fmt.Sprintf("%dx%d", w.nodes, w.gpus) }

// pairs are the policies of Gavel and those of ours that they are held against:
// the same goal, and what themis does instead.
var pairs = []struct {
	theirs string
	ours   []string
}{
	{"fifo", []string{"fifo"}},
	{"finish_time_fairness", []string{"gavel", "themis"}},
}

func bench(ctx context.Context, o options) (err error) {
	folder := filepath.Join(o.out, "sim")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(o.out, "sim.txt"))
	if err != nil {
		return err
	}
	defer file.Close()
	out := io.MultiWriter(os.Stdout, file)

	rival := findGavel(out, filepath.Join(filepath.Dir(o.out), "gavel"))
	fmt.Fprintln(out, "fred: left out: no public simulator of GPU clusters of that name is known to us")
	works, err := workloads(out, o, folder)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "one core each; leases and rounds of %s; a run over %s is killed; >, <: so far, when it was\n\n", lease, o.limit)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "trace\tjobs\tcluster\tsimulator\tpolicy\twall s\tCPU s\tMB\tevents/s\tmean JCT h\tCPU s, theirs / ours\t")
	defer func() { w.Flush() }()
	for i := range works {
		if err := measure(ctx, w, o, folder, &works[i], rival); err != nil {
			return err
		}
	}
	return nil
}

// workloads are those of others only where their folder is given. Philly comes
// last: what this process holds when it starts another counts in that one's peak.
func workloads(out io.Writer, o options, folder string) ([]workload, error) {
	generated := workload{name: "generated", path: filepath.Join(folder, "generated.csv"), nodes: 16, gpus: 4, policies: []string{"fifo", "gavel", "themis"}}
	list := []workload{generated}
	if err := generate(generated.path, o.jobs, generated.nodes*generated.gpus); err != nil {
		return nil, err
	}
	for _, w := range []workload{
		{name: "shockwave", path: "shockwave/120_multigpu_dynamic.trace", nodes: 8, gpus: 4, policies: []string{"fifo", "gavel", "themis"}},
		{name: "philly", path: "philly/philly.csv", nodes: 312, gpus: 8, policies: []string{"fifo", "srtf", "gavel", "themis"}},
	} {
		w.path = filepath.Join(o.traces, w.path)
		if o.traces == "" {
			fmt.Fprintf(out, "%s: left out: TRACES names no folder with it\n", w.name)
		} else if _, err := os.Stat(w.path); err != nil {
			fmt.Fprintf(out, "%s: left out: %v\n", w.name, err)
		} else {
			list = append(list, w)
		}
	}
	return list, nil
}

// measure plays one workload with ours and with the rival, a line each.
func measure(ctx context.Context, w io.Writer, o options, folder string, work *workload, rival *gavel) error {
	line := func(simulator, policy string, r *result, ratio string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", work.name, number(float64(r.jobs), 0), work.cluster(), simulator, policy,
			r.seconds(), number(r.cpu.Seconds(), 2), number(r.mb, 0), number(r.rate(), 0), number(r.jct, 2), ratio)
	}
	ours := map[string]*result{}
	for _, p := range work.policies {
		fmt.Fprintf(os.Stderr, "%s: themis, %s\n", work.name, p)
		r, err := themis(ctx, o, folder, work, p)
		if err != nil {
			return err
		}
		ours[p] = r
		line("themis", p, r, "")
	}
	if rival == nil {
		return nil
	}
	if err := rival.convert(work, folder); err != nil {
		return err
	}
	for _, pair := range pairs {
		fmt.Fprintf(os.Stderr, "%s: gavel, %s\n", work.name, pair.theirs)
		r, err := rival.play(ctx, o, folder, work, pair.theirs)
		if err != nil {
			return err
		}
		var ratios []string
		for _, p := range pair.ours {
			if ours[p] != nil && !r.failed {
				ratios = append(ratios, p+" "+ratio(r, ours[p]))
			}
		}
		if r.failed {
			ratios = []string{"failed: see " + r.log}
		}
		line("gavel", pair.theirs, r, strings.Join(ratios, ", "))
	}
	return nil
}

// ratio is how many times the CPU time theirs takes, which other work on the
// machine disturbs less than wall time; a bound where one was killed.
func ratio(theirs, ours *result) string {
	x := theirs.cpu.Seconds() / ours.cpu.Seconds()
	s := strconv.FormatFloat(x, 'f', 1, 64) + "x"
	switch {
	case theirs.killed && ours.killed:
		return "?"
	case theirs.killed:
		return ">" + s
	case ours.killed:
		return "<" + s
	}
	return s
}

// number is "-" for what is not known.
func number(x float64, digits int) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}
