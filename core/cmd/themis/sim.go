// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"themis/core/sim"
	html "themis/core/sim/report"
	"themis/core/trace"
)

// simFlags are the flags of sim, and of each cell of a sweep.
type simFlags struct {
	policy, cluster, format, jobs, mix, lie string
	lenient                                 bool
	sim.Options
}

// gcPercent is how much garbage a simulation lets pile up, as part of what lives.
const gcPercent = 300

func newSim(a *app) *cobra.Command {
	var f simFlags
	var out, baseline string
	names, titles := sim.Policies()
	var list strings.Builder
	for i := range names {
		fmt.Fprintf(&list, "  %-16s %s\n", names[i], titles[i])
	}
	c := &cobra.Command{
		Use:   "sim TRACE",
		Short: "replay a trace, or this site's own history, under several policies",
		Long: "sim plays a workload on a simulated cluster and says what its users would have got: finish-time fairness\n" +
			"by every definition in use, run times, GPU-hours. The policy \"themis\" is the very code that schedules live.\n" +
			"TRACE is read by its content:\n" + formats() + "\nPolicies:\n" + list.String() + "\n" +
			"To replay your own site:\n  " + trace.SacctCommand + " > jobs.txt",
		Example: "  themis sim jobs.txt --cluster nodes.csv --policy themis,multifactor --html report.html\n" +
			"  themis sim trace.csv --cluster 8x4 --lease 5m --restart 45s --json",
		Args: exactly("TRACE"),
		RunE: func(c *cobra.Command, args []string) error {
			t, cl, err := f.load(args[0])
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer debug.SetGCPercent(debug.SetGCPercent(gcPercent)) // the heap is small, so a larger one costs little
			r, err := f.play(ctx, t, cl, out != "", newProgress(os.Stderr))
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeReport(out, r, baseline); err != nil {
					return err
				}
			}
			if a.json {
				raw, err := json.Marshal(r)
				if err == nil {
					err = printJSON(raw)
				}
				return err
			}
			printSim(os.Stdout, r)
			if ctx.Err() != nil {
				return errors.New("stopped: figures are of what had run until then")
			}
			return nil
		},
	}
	f.register(c)
	c.Flags().StringVar(&out, "html", "", "write a report with charts to this `FILE`")
	c.Flags().StringVar(&baseline, "baseline", "", "the policy that the report compares with (default: the first that is not themis)")
	c.AddCommand(newSweep(a), newReplay(a))
	return c
}

func formats() string {
	var s strings.Builder
	for _, f := range trace.Formats() {
		s.WriteString("  " + f + "\n")
	}
	return s.String()
}

func (f *simFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "themis,multifactor,srtf,fifo", "policies, comma-separated, or all")
	fl.StringVar(&f.cluster, "cluster", "64", "a node list's `FILE`, or NODESxGPUS as 8x4, or 64, 256: the paper's racks")
	fl.StringVar(&f.format, "format", "", "of the trace, if its content does not tell")
	fl.BoolVar(&f.lenient, "lenient", false, "leave out rows that cannot be used, instead of stopping at the first")
	fl.StringVar(&f.jobs, "jobs", "", "rigid: gangs of all their GPUs; elastic: any number up to it (default: as the trace has them)")
	fl.StringVar(&f.mix, "mix", "", "draw gang sizes anew: w1, w2 (the paper's) or size:share,...")
	fl.DurationVar(&f.Lease, "lease", 10*time.Minute, "length of a lease")
	fl.Float64Var(&f.F, "f", 0.8, "share of the apps, the best off, that stay out of an auction")
	fl.Float64Var(&f.Target, "target", 1, "the worst rho that themis aims at; above 1 it leaves time for --aim")
	fl.StringVar(&f.Aim, "aim", "turnaround", "what themis does with time that apps have: turnaround (the shortest first), makespan")
	fl.DurationVar(&f.Restart, "restart", 45*time.Second, "what a job loses when it starts again")
	fl.DurationVar(&f.Checkpoint, "checkpoint", 10*time.Minute, "between two checkpoints; a node's failure costs what came after the last")
	fl.Uint64Var(&f.Seed, "seed", 1, "of everything random")
	fl.StringVar(&f.Estimate, "estimates", "declared", "what is known of run times: declared, history (what like jobs took), limit")
	fl.Float64Var(&f.Error, "error", 0, "declared run times are off by up to this share, both ways")
	fl.StringVar(&f.lie, "lie", "", "apps that declare falsely, as app=3:x0.5,app=7:x2")
	fl.StringVar(&f.Entity, "entity", "app", "whose share of the cluster is split: app, user, account")
	fl.DurationVar(&f.MTBF, "mtbf", 0, "mean time between failures of a node; 0: none fails")
}

// load reads trace and cluster and checks them against the flags.
func (f *simFlags) load(path string) (*trace.Trace, *trace.Cluster, error) {
	oneOf := func(flag, got string, among ...string) error {
		for _, a := range among {
			if got == a {
				return nil
			}
		}
		return usageError{fmt.Errorf("--%s %q: want %s", flag, got, strings.Join(among, ", "))}
	}
	if err := errors.Join(oneOf("jobs", f.jobs, "", "rigid", "elastic"), oneOf("estimates", f.Estimate, "declared", "history", "limit"),
		oneOf("aim", f.Aim, "turnaround", "makespan"), oneOf("entity", f.Entity, "app", "user", "account")); err != nil {
		return nil, nil, err
	}
	f.Lies = map[string]float64{}
	for _, l := range strings.Split(f.lie, ",") {
		if l == "" {
			continue
		}
		app, by, ok := strings.Cut(strings.TrimPrefix(l, "app="), ":x")
		x, err := strconv.ParseFloat(by, 64)
		if !ok || err != nil {
			return nil, nil, usageError{fmt.Errorf("--lie %q: want app=NAME:xFACTOR, as app=3:x0.5", l)}
		}
		f.Lies[app] = x
	}
	if f.Lease <= 0 {
		return nil, nil, usageError{fmt.Errorf("--lease %s: want a duration above 0, as 5m", f.Lease)}
	}
	c, err := trace.OpenCluster(f.cluster)
	if err != nil {
		return nil, nil, err
	}
	t, err := trace.Open(path, trace.Options{Format: f.format, Lenient: f.lenient})
	if err != nil {
		return nil, nil, err
	}
	if f.mix != "" {
		if err := t.Mix(f.mix, f.Seed); err != nil {
			return nil, nil, usageError{err}
		}
	}
	switch f.jobs {
	case "rigid":
		t.Rigid()
	case "elastic":
		t.Elastic()
	}
	return t, c, f.Options.Check(t, c)
}

// names are the policies to run.
func (f *simFlags) names() ([]string, error) {
	all, _ := sim.Policies()
	if f.policy == "all" {
		return all, nil
	}
	var out []string
	for _, n := range strings.Split(f.policy, ",") {
		n = strings.TrimSpace(n)
		known := false
		for _, a := range all {
			known = known || a == n
		}
		if !known {
			return nil, usageError{fmt.Errorf("--policy: no policy %q; one of %s", n, strings.Join(all, ", "))}
		}
		out = append(out, n)
	}
	return out, nil
}

// play runs the policies, as many at once as there are cores; what it returns
// depends on nothing but trace, cluster and flags.
func (f *simFlags) play(ctx context.Context, t *trace.Trace, c *trace.Cluster, lanes bool, p *progress) (*sim.Result, error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	r := sim.Describe(t, c, f.Options)
	refs := sim.TraceReferences(t, c.GPUs())
	r.Bounds = sim.TraceBounds(t, refs, c.GPUs())
	results := make([]sim.PolicyResult, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range names {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			o := f.Options
			o.Lanes = lanes
			o.Progress = func(_ time.Duration, ended, jobs int) bool {
				p.set(name, float64(ended)/float64(max(jobs, 1))/float64(len(names)))
				return ctx.Err() == nil
			}
			if ctx.Err() == nil {
				results[i], errs[i] = sim.Play(t, c, o, name, refs)
			}
			p.set(name, 1/float64(len(names)))
		}()
	}
	wg.Wait()
	p.done()
	for i := range results {
		if results[i].Policy != "" {
			r.Policies = append(r.Policies, results[i])
		}
	}
	return r, errors.Join(errs...)
}

func writeReport(path string, r *sim.Result, baseline string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return html.HTML(f, r, baseline)
}

// printSim is the table for people.
func printSim(w io.Writer, r *sim.Result) {
	fmt.Fprintf(w, "%s (%s): %d apps, %d jobs, %.1f GPU-hours of work\n", r.Trace, r.Format, r.Apps, r.Jobs, r.Floor)
	fmt.Fprintf(w, "cluster %s: %d GPUs on %d nodes; %s jobs, lease %s, f %g, restart %s, run times as %s\n", r.Cluster, r.GPUs, r.Nodes,
		r.Settings.Jobs, seconds(r.Settings.LeaseS), r.Settings.F, seconds(r.Settings.RestartS), r.Settings.Estimate)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	if r.Skipped > 0 {
		fmt.Fprintf(w, "note: %d rows were left out\n", r.Skipped)
	}
	fmt.Fprintf(w, "\n%-16s %8s %8s %8s %7s %9s %10s %9s %8s %8s %9s\n", "POLICY", "MAX RHO", "P99", "MEDIAN", ">1.05", "JCT MEAN", "MAKESPAN", "GPU-HOURS", "USED", "PLACED", "MOVES")
	for _, p := range r.Policies {
		x := p.Rho["reference"]
		note := ""
		if p.Unfinished > 0 {
			note = fmt.Sprintf("  %d jobs unfinished", p.Unfinished)
		}
		fmt.Fprintf(w, "%-16s %8.2f %8.2f %8.2f %6.1f%% %8.2fh %9.2fh %9.1f %7.1f%% %8.3f %9d%s\n", p.Policy, x.Max, x.P99, x.Median, 100*x.Unfair,
			p.JCTMean, p.Makespan, p.GPUHours, 100*p.Utilisation, p.Placement, p.Migrations, note)
	}
	fmt.Fprintf(w, "\nrho by every definition: max (median)\n%-16s", "POLICY")
	for _, d := range sim.Definitions {
		fmt.Fprintf(w, " %16s", d.Name)
	}
	fmt.Fprintln(w)
	for _, p := range r.Policies {
		fmt.Fprintf(w, "%-16s", p.Policy)
		for _, d := range sim.Definitions {
			fmt.Fprintf(w, " %16s", fmt.Sprintf("%.2f (%.2f)", p.Rho[d.Name].Max, p.Rho[d.Name].Median))
		}
		fmt.Fprintln(w)
	}
	if b := r.Bounds; b != nil {
		fmt.Fprintf(w, "\nproven for any schedule: max rho (reference) at least %.3f; makespan at least", b.RhoMax)
		for i, m := range b.Makespans {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			if m.Rho == 0 {
				fmt.Fprintf(w, " %.2f h for any", m.Hours)
			} else {
				fmt.Fprintf(w, " %.2f h for rho <= %.2f", m.Hours, m.Rho)
			}
		}
		fmt.Fprintln(w)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
