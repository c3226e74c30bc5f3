// SPDX-License-Identifier: Apache-2.0

// Command results writes docs/results.md: what the policies do on the traces of
// the THEMIS paper and of others, beside what those report. All that is in it
// comes from here; the same code and traces give the same bytes.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"themis/core/sim"
)

// ours is the policy that schedules live.
const ours = "themis"

const hint = "hint: make results TRACES=DIR, where DIR has themis/ and shockwave/ with the traces"

func main() {
	folder := flag.String("traces", "", "`DIR` with the traces: themis/, shockwave/")
	out := flag.String("out", "docs/results.md", "`FILE` to write")
	quick := flag.Bool("quick", false, "a few policies and settings only, to see that it works")
	runs := flag.String("runs", "", "`FILE` that keeps the runs, to go on after a stop or to change the text: of this very code only")
	flag.Parse()
	if err := write(*folder, *out, *runs, *quick, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "results: "+err.Error())
		os.Exit(1)
	}
}

func write(folder, out, runs string, quick bool, progress io.Writer) error {
	if folder == "" {
		return fmt.Errorf("-traces names no folder\n%s", hint)
	}
	for _, name := range []string{fig19, philly, shockwave} {
		if _, err := os.Stat(filepath.Join(folder, filepath.FromSlash(traceFiles[name]))); err != nil {
			return fmt.Errorf("the trace of %s: %w\n%s", name, err, hint)
		}
	}
	l := &lab{folder: folder, progress: progress, results: map[string]sim.PolicyResult{}, loaded: map[workload]*loaded{}}
	if runs != "" {
		if err := l.keep(runs); err != nil {
			return err
		}
		defer l.kept.Close()
	}
	b := book{lab: l, quick: quick}
	if _, err := b.text(); err != nil { // to learn which runs it needs
		return err
	}
	if err := l.play(); err != nil {
		return err
	}
	text, err := b.text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// book is the document.
type book struct {
	*doc
	*lab
	quick bool
}

func (b *book) text() (string, error) {
	b.doc = &doc{}
	for _, section := range []func() error{b.preface, b.goals, b.sweep, b.testbeds, b.errors, b.estimates, b.definitions, b.robustness} {
		if err := section(); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// some is all, or with -quick the first few.
func some[T any](b *book, first int, all []T) []T {
	if b.quick {
		return all[:min(first, len(all))]
	}
	return all
}

// policies are all that the simulator has.
func (b *book) policies() []string {
	if b.quick {
		return []string{ours, "themis-paper", "themis-coded", "srtf"}
	}
	names, _ := sim.Policies()
	return names
}

// titles are the policies', by name.
func titles() map[string]string {
	names, all := sim.Policies()
	m := map[string]string{}
	for i, n := range names {
		m[n] = all[i]
	}
	return m
}

// base is what all runs have in common.
func base() sim.Options { return sim.Options{F: .8, Seed: 1} }

// onFig19 is a run of figure 19's workload with leases of 5 minutes: elastic and
// without restart costs as in the authors' simulator, or gangs with 45 s of it.
func onFig19(policy, cluster string, elastic bool) run {
	r := run{workload{trace: fig19, cluster: cluster, elastic: elastic}, policy, base()}
	if r.Lease = 5 * time.Minute; !elastic {
		r.Restart = 45 * time.Second
	}
	return r
}

// onTestbed is a run of W1 or W2.
func onTestbed(policy, mix string) run {
	r := run{workload{trace: philly, mix: mix, cluster: "64"}, policy, base()}
	r.Lease, r.Restart = 10*time.Minute, 45*time.Second
	return r
}

// leftOut says why a run is not made; "" if it is.
func leftOut(policy, mix string) string {
	if mix == "w2" && policy == "themis-paper" {
		return slowRun
	}
	return ""
}

// mode is how figure 19's jobs are taken.
func mode(elastic bool) string {
	if elastic {
		return "elastic, restart 0"
	}
	return "rigid, restart 45 s"
}

// clusters are those of figure 19.
var clusters = []string{"64", "256"}

func (b *book) preface() error {
	fmt.Fprintf(b, "# Results\n\n<!-- Made by tests/results. Do not edit: make results TRACES=DIR writes it anew. -->\n")
	b.say("What `themis` and %d other policies do on the workloads of the THEMIS paper and of Shockwave, in simulation, beside what those papers report. "+
		"The policy `themis` is the code that schedules live. To make this page again: `make results TRACES=DIR`, where DIR has the folders `themis/` and `shockwave/` with the traces. "+
		"The program `tests/results` writes every word and figure; the same code and traces give the same page.", len(b.policies())-1)
	if b.quick {
		b.say("**This page was made with -quick: few policies and settings.**")
	}
	b.head("1. What is measured")
	b.points(
		"Rho is an app's (or job's) time from submission to end, over what it would be if the cluster were shared fairly. 1 is fair, less is better. Definitions differ in what fair sharing would be; section 7 has them all.",
		"**Reference** is what Themis promises: the app's time in a fluid max-min fair schedule of the same arrivals. It does not depend on the policy under test. Where no definition is named, rho is this one.",
		"GPU-hours are those held, restarts and bad places included. The floor is the work itself. GPU-hours alone hide idle GPUs, so makespan or mean JCT (job completion time, here of apps) stands beside them.",
		"*Elastic* jobs run on any number of GPUs up to what they ask for, as in the authors' simulator. *Rigid* jobs are gangs, as in Slurm and YARN. A restart costs 45 s of a job that has run before, or nothing where it says restart 0.",
		"f, the share of apps that stay out of an auction, is 0.8. Seed 1, except where seeds are named. Run times are known as declared, and truly, except in sections 5 and 6.",
		"Marks of others' figures: [P] the paper's text, [C] its authors' code, [D] read off a figure by eye, [M] from memory. None was measured by us.",
	)
	rows := [][]string{}
	for _, w := range []struct {
		what string
		workload
		of string
	}{
		{"Figure 19", workload{trace: fig19, cluster: "256"}, "64 or 256 GPUs in the paper's racks; leases of 5 min"},
		{"W1", onTestbed("", "w1").workload, "64 GPUs in the paper's racks; rigid, leases of 10 min, restart 45 s"},
		{"W2", onTestbed("", "w2").workload, "the same"},
		{"Shockwave", workload{trace: shockwave, cluster: "8x4", flat: true}, "8 nodes of 4 GPUs; rigid, restart 0"},
	} {
		d, err := b.load(w.workload)
		if err != nil {
			return err
		}
		about := sim.Describe(d.trace, d.on, base())
		rows = append(rows, []string{w.what, "`" + filepath.Base(traceFiles[w.trace]) + "`", fmt.Sprint(about.Apps), thousands(fmt.Sprint(about.Jobs)), tenth(about.Floor), w.of})
	}
	b.table([]string{"workload", "trace", "apps", "jobs", "floor, GPU-hours", "cluster and settings"}, rows)
	b.say("W1 and W2 are one trace with gang sizes drawn anew (seed 1) from the paper's distributions: 1, 2 and 3 GPUs in 75%%, 23%% and 2%% of the jobs, and 1, 2, 4 and 8 in 20%%, 18%%, 60%% and 2%% [D]. " +
		"The trace does not say when jobs were submitted, only when they ran: all jobs of an app are submitted with its first. " +
		"In Shockwave's trace S is 1 everywhere, as its own simulator ignores where jobs are placed.")
	return nil
}

// unfairApps is the share of the apps that are above 1.05.
func unfairApps(p sim.PolicyResult) float64 { return p.Rho["reference"].Unfair }

// longer is the worst rho of the apps whose time in the fluid schedule is longer
// than a lease; that time is never below the app's with the cluster to itself.
func longer(p sim.PolicyResult, lease time.Duration) (worst float64, apps int) {
	for _, a := range p.PerApp {
		if a.Ref-a.Submit > lease.Hours() {
			worst = max(worst, a.Rho["reference"])
			apps++
		}
	}
	return worst, apps
}

// unfair are the apps above 1.05, the worst first.
func unfair(p sim.PolicyResult) (apps []sim.AppResult) {
	for _, a := range p.PerApp {
		if a.Rho["reference"] > 1.05 {
			apps = append(apps, a)
		}
	}
	slices.SortStableFunc(apps, func(a, b sim.AppResult) int { return cmp.Compare(b.Rho["reference"], a.Rho["reference"]) })
	return apps
}

// fate is an app's rho and its time in the fluid schedule.
func fate(a sim.AppResult) string {
	fair := fmt.Sprintf("%.1f h", a.Ref-a.Submit)
	if a.Ref-a.Submit < 1 {
		fair = fmt.Sprintf("%.0f min", 60*(a.Ref-a.Submit))
	}
	return fmt.Sprintf("%s (fair time %s, %s)", rho(a.Rho["reference"]), fair, plural(a.Jobs, "job"))
}

// lostTo are the policies that are better than ours by a hundredth or more.
func lostTo(names []string, value func(name string) float64) []string {
	var out []string
	for _, n := range names {
		if n != ours && value(n) < value(ours)-.005 {
			out = append(out, "`"+n+"` ("+rho(value(n))+")")
		}
	}
	return out
}
