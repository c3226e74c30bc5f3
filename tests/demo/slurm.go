// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"themis/tests/privateslurm"
)

// config has short leases, so that a lease ends while one watches.
const config = `
[auction]
settle = "500ms"
[lease]
length = "15s"
least = "8s"
grace = "4s"
take_up = "15s"
restart_cost = "10s"
[gather]
after = "10s"
limit = "2m"
[host]
tick = "500ms"
`

// trainer does SECONDS steps of a second each. Told that its lease ends (its
// own --signal, USR1), it saves where it is; requeued, it goes on from there.
const trainer = `#!/bin/bash
state=$PWD/trainer.$SLURM_JOB_ID
step=$(cat "$state" 2>/dev/null || echo 0)
echo "starts at step $step on $SLURM_JOB_NODELIST"
trap 'echo $step >"$state"; echo "saved at step $step"' USR1
while ((step < SECONDS_OF_WORK)); do sleep 1 & wait $!; step=$((step + 1)); done
echo "done at step $step"
`

// work is one submission: when, whose, as which app, and how.
type work struct {
	at     time.Duration
	user   string
	app    string // as in the table; "" has no GPUs
	what   string
	script string
	args   []string
}

func submissions() []work {
	seconds := func(n int) string { return strings.ReplaceAll(trainer, "SECONDS_OF_WORK", fmt.Sprint(n)) }
	nap := func(n int) string { return fmt.Sprintf("#!/bin/bash\nsleep %d\n", n) }
	hint := func(text string) string { return "--comment=themis: " + text }
	return []work{
		{0, "bob", "train", "a checkpointing trainer on each of the 4 nodes, 40 s of work each", seconds(40),
			[]string{"-J", "train", "--array=1-4", "--gres=gpu:8", "--signal=B:USR1", "--requeue", "-t10", hint("app=train runtime=40s checkpoint=1s")}},
		{4 * time.Second, "alice", "sweep", "a sweep: a job array of 16 tasks, 2 GPUs and 8 s each", nap(8),
			[]string{"-J", "sweep", "--array=1-16", "--gres=gpu:2", "-t5", hint("app=sweep runtime=8s")}},
		{6 * time.Second, "carol", "gang-a", "a gang of 2 x 8 GPUs for 10 s", nap(10),
			[]string{"-J", "gang-a", "-N2", "--gres=gpu:8", "-t5", hint("app=gang-a runtime=10s model=vgg16")}},
		{7 * time.Second, "carol", "gang-b", "another gang of 2 x 8 GPUs for 10 s", nap(10),
			[]string{"-J", "gang-b", "-N2", "--gres=gpu:8", "-t5", hint("app=gang-b runtime=10s model=vgg16")}},
		{8 * time.Second, "carol", "", "a CPU job, which waits for nobody", nap(5),
			[]string{"-J", "cpu", "-n4", "-t5"}},
	}
}

// slurm is the demo on a private Slurm cluster of 4 nodes with 8 fake GPUs each,
// with sbatch as its users' command.
func slurm(ctx context.Context) error {
	fmt.Println("== under Themis: SelectType=select/themis, PriorityType=priority/themis, JobSubmitPlugins=themis")
	themis, err := privateslurm.Start(ctx, privateslurm.Options{Themis: true, ThemisTOML: config})
	if err != nil {
		return err
	}
	defer themis.Close()
	with, err := pass(ctx, themis, true)
	if err != nil {
		return err
	}
	refs, err := references(themis.Themis)
	if err != nil {
		return err
	}
	keep := os.Getenv("KEEP") == "1"
	if !keep {
		themis.Close()
	}
	fmt.Println("\n== the same submissions on stock Slurm: select/cons_tres, priority/multifactor")
	stock, err := privateslurm.Start(ctx, privateslurm.Options{})
	if err != nil {
		return err
	}
	defer stock.Close()
	without, err := pass(ctx, stock, false)
	if err != nil {
		return err
	}
	stock.Close()
	table(with, without, refs)
	if keep {
		return stay(ctx, themis)
	}
	return nil
}

// pass submits all the work on its schedule and follows it to its end.
func pass(ctx context.Context, c *privateslurm.Cluster, withThemis bool) (map[string]result, error) {
	begin := time.Now()
	w := &watcher{c: c, stopwatch: stopwatch(begin), apps: map[string]string{}, sent: map[string]time.Time{}, shown: map[string]string{}, themis: withThemis}
	todo := submissions()
	for len(todo) > 0 || !w.done() {
		if len(todo) > 0 && time.Since(begin) >= todo[0].at {
			s := todo[0]
			todo = todo[1:]
			id, err := c.Sbatch(s.user, s.script, s.args...)
			if err != nil {
				return nil, err
			}
			w.apps[id], w.sent[s.app] = s.app, time.Now()
			w.say("%s submits job %s: %s", s.user, id, s.what)
		}
		if err := w.look(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(400 * time.Millisecond):
		}
		if time.Since(begin) > 110*time.Second {
			return nil, errors.New("the jobs did not end in time; see " + c.Dir)
		}
	}
	return w.results(), nil
}

// watcher follows the jobs and says what changes.
type watcher struct {
	stopwatch
	c      *privateslurm.Cluster
	apps   map[string]string    // by job id as sbatch said it
	sent   map[string]time.Time // by app; Slurm sets a job's anew at a requeue
	shown  map[string]string    // last line about a job
	jobs   []map[string]string
	themis bool
}

func (w *watcher) look() error {
	var err error
	if w.jobs, err = w.c.Jobs(); err != nil {
		return err
	}
	var lines []string
	for _, j := range w.jobs {
		line := j["JobState"]
		switch line {
		case "RUNNING":
			line = "runs on " + j["NodeList"]
		case "PENDING":
			line = "waits"
			if strings.HasPrefix(j["Reason"], "Themis") {
				line = "waits: " + strings.ReplaceAll(j["Reason"], "_", " ")
				line, _, _ = strings.Cut(line, "; next")
			}
			if j["Restarts"] != "0" {
				line = "was requeued after its lease ended; " + line
			}
		case "COMPLETED":
			line = "is done"
		}
		name := name(j)
		// Only what is new: a reason is shown once, not each time its numbers move.
		key, _, reasoned := strings.Cut(line, ": Themis: rho")
		if key = fmt.Sprint(key, reasoned); w.shown[name] != key {
			w.shown[name] = key
			lines = append(lines, fmt.Sprintf("job %s (%s) %s", name, j["JobName"], line))
		}
	}
	sort.Strings(lines)
	const most = 6 // a sweep says much the same of each task
	for i, l := range lines {
		if i == most {
			w.say("... and %d more", len(lines)-most)
			break
		}
		w.say("%s", l)
	}
	return nil
}

// name is the job's id as squeue shows it.
func name(j map[string]string) string {
	if t := j["ArrayTaskId"]; t != "" {
		return j["ArrayJobId"] + "_" + t
	}
	return j["JobId"]
}

func (w *watcher) done() bool {
	for _, j := range w.jobs {
		if s := j["JobState"]; s == "PENDING" || s == "RUNNING" || s == "COMPLETING" || s == "CONFIGURING" {
			return false
		}
	}
	return true
}

func (w *watcher) results() map[string]result {
	out := map[string]result{}
	for _, j := range w.jobs {
		id := j["ArrayJobId"]
		if id == "" {
			id = j["JobId"]
		}
		app := w.apps[id]
		end, _ := time.ParseInLocation("2006-01-02T15:04:05", j["EndTime"], time.Local)
		r := result{w.sent[app], out[app].end}
		if end.After(r.end) {
			r.end = end
		}
		out[app] = r
	}
	return out
}

// stay prints how to use the cluster and waits for Ctrl-C.
func stay(ctx context.Context, c *privateslurm.Cluster) error {
	fmt.Println("\nThe cluster under Themis runs on until Ctrl-C. In another terminal:")
	for _, e := range c.Env() {
		key, value, _ := strings.Cut(e, "=")
		if key != "HOME" && key != "LANG" {
			fmt.Printf("  export %s='%s'\n", key, value)
		}
	}
	fmt.Println("  sbatch --gres=gpu:4 --wrap='sleep 60'; themis status")
	<-ctx.Done()
	fmt.Println()
	return nil
}
