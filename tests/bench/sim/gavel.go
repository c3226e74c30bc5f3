// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"themis/core/trace"
)

// The commit of stanford-futuredata/gavel that the figures are of.
const gavelCommit = "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c"

// In the traces that we write for Gavel every job is of this model, one of its
// own, and all run at one step a second, so that their run times are ours. More
// steps make ECOS, the solver that Gavel calls, fail on the weeks of Philly.
const gavelModel = "ResNet-18 (batch size 32)"

// gavel is a checkout and the Python that can run it.
type gavel struct{ checkout, python string }

// findGavel is nil, with the reason printed, where Gavel cannot be had.
func findGavel(out io.Writer, env string) *gavel {
	checkout := os.Getenv("GAVEL_REPO")
	if checkout == "" {
		fmt.Fprintf(out, "gavel: left out: GAVEL_REPO names no checkout of stanford-futuredata/gavel at %.12s\n", gavelCommit)
		return nil
	}
	checkout, err := filepath.Abs(checkout)
	if err == nil {
		_, err = os.Stat(filepath.Join(checkout, "scheduler", "scheduler.py"))
	}
	if err != nil {
		fmt.Fprintf(out, "gavel: left out: GAVEL_REPO: %v\n", err)
		return nil
	}
	install := exec.Command("tests/bench/sim/install", env)
	install.Stderr = os.Stderr
	said, err := install.Output()
	if err != nil {
		fmt.Fprintf(out, "gavel: left out: its Python packages cannot be had: %s\n", strings.TrimSpace(string(said)))
		return nil
	}
	commit, err := exec.Command("git", "-C", checkout, "rev-parse", "HEAD").Output()
	at := strings.TrimSpace(string(commit))
	switch {
	case err != nil:
		at = "a commit that git cannot tell"
	case at != gavelCommit:
		at += ", not " + gavelCommit
	}
	fmt.Fprintf(out, "gavel: at %s\n", at)
	return &gavel{checkout, filepath.Join(env, "bin", "python")}
}

func (g *gavel) files(w *workload, folder string) (jobs, speeds string) {
	at, _ := filepath.Abs(filepath.Join(folder, w.name+"-gavel"))
	return at + ".trace", at + ".json"
}

// convert writes the workload as Gavel reads it: a line for each job, times from
// the first arrival, and the speed of each size of gang.
func (g *gavel) convert(w *workload, folder string) (err error) {
	t, err := trace.Open(w.path, trace.Options{})
	if err != nil {
		return err
	}
	lines, table := g.files(w, folder)
	f, err := os.Create(lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := bufio.NewWriter(f)
	speeds := map[string]map[string]float64{fmt.Sprintf("('%s', 1)", gavelModel): {"null": 1}}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		steps := max(int(math.Round(j.Runtime.Seconds())), 1)
		// model, command, folder, steps argument, needs data, steps, GPUs, priority, SLO (none), arrival
		fmt.Fprintf(b, "%s\tpython3 main.py --batch_size 32\t.\t--num_steps\t0\t%d\t%d\t1\t-1\t%g\n", gavelModel, steps, j.GPUs, (j.Submit - t.Jobs[0].Submit).Seconds())
		speeds[fmt.Sprintf("('%s', %d)", gavelModel, j.GPUs)] = map[string]float64{"null": 1}
	}
	if err := b.Flush(); err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"v100": speeds})
	if err != nil {
		return err
	}
	return os.WriteFile(table, raw, 0o644)
}

var (
	gavelMean = regexp.MustCompile(`(?m)^Average job completion time: ([0-9.]+) seconds`)
	gavelJob  = regexp.MustCompile(`(?m)^Job \d+: `)
)

// play runs Gavel's own driver on what convert wrote.
func (g *gavel) play(ctx context.Context, o options, folder string, w *workload, policy string) (*result, error) {
	lines, table := g.files(w, folder)
	log := filepath.Join(folder, w.name+"-gavel-"+policy)
	r, err := run(ctx, o.limit, log, g.python, "tests/bench/sim/gavel.py", g.checkout,
		"--trace_file", lines, "--throughputs_file", table, "--policy", policy, "--seed", "0",
		"--cluster_spec", fmt.Sprintf("%d:0:0", w.nodes*w.gpus), "--num_gpus_per_server", fmt.Sprintf("%d:1:1", w.gpus),
		"--time_per_iteration", strconv.Itoa(int(lease.Seconds())))
	if err != nil || r.killed || r.failed {
		return r, err
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	mean := gavelMean.FindSubmatch(raw)
	if mean == nil {
		return nil, fmt.Errorf("%s: says no average job completion time", log)
	}
	seconds, err := strconv.ParseFloat(string(mean[1]), 64)
	r.jct, r.jobs = seconds/3600, len(gavelJob.FindAll(raw, -1))
	return r, err
}
