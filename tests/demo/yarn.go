// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"themis/bridge"
	"themis/tests/privateyarn"
)

const (
	yarnNodes = 3
	yarnGPUs  = 4 // of each
)

// yarnConfig has short leases, so that a lease ends while one watches.
const yarnConfig = `
[auction]
settle = "500ms"
[lease]
length = "15s"
least = "8s"
grace = "5s"
take_up = "15s"
restart_cost = "5s"
[gather]
after = "10s"
limit = "2m"
[host]
tick = "300ms"
`

// application is one submission: when, whose, to which queue, and of what.
type application struct {
	after       []string // that have GPUs, or are gangs that wait for them
	user, queue string
	name        string
	what        string
	containers  int
	gpus        int // of each
	seconds     int // of work of each container
	gang        bool
	tags        []string
}

// applications has gangs, which start when they have all their containers and are
// CheckpointingMaster, and one that takes what it gets, by distributed shell.
//
// On stock YARN the two gangs of carol and dave deadlock if both have asked before
// bob's trainer ends: five containers each, where six fit. Containers without GPUs
// that come while a gang waits are held up there, too.
func applications() []application {
	return []application{
		{nil, "bob", "batch", "train", "a checkpointing trainer, 4 x 2 GPUs for 40 s", 4, 2, 40, true,
			[]string{"themis:app=train", "themis:runtime=40s", "themis:checkpoint=1s"}},
		{nil, "alice", "batch", "sweep", "8 tasks of 1 GPU and 8 s, by Hadoop's distributed shell", 8, 1, 8, false,
			[]string{"themis:app=sweep", "themis:runtime=8s", "themis:gang=1"}},
		{[]string{"train", "sweep"}, "carol", "vision", "gang-a", "a gang of 5 x 2 GPUs for 10 s, of use only as a whole", 5, 2, 10, true,
			[]string{"themis:app=gang-a", "themis:runtime=10s"}},
		{[]string{"train", "sweep"}, "dave", "speech", "gang-b", "another gang of 5 x 2 GPUs for 10 s", 5, 2, 10, true,
			[]string{"themis:app=gang-b", "themis:runtime=10s"}},
		{[]string{"gang-a", "gang-b"}, "carol", "vision", "cpu", "2 containers without GPUs for 5 s", 2, 0, 5, true, nil},
	}
}

func (a *application) submit(c *privateyarn.Cluster) error {
	if a.gang {
		_, err := c.Submit(privateyarn.App{Name: a.name, User: a.user, Queue: a.queue, Containers: a.containers, GPUs: a.gpus, Seconds: a.seconds, Tags: a.tags})
		return err
	}
	return c.SubmitShell(privateyarn.Shell{Name: a.name, User: a.user, Queue: a.queue, Containers: a.containers, GPUs: a.gpus,
		Command: "sleep", Args: fmt.Sprint(a.seconds), Tags: a.tags})
}

// yarn is the demo on a private YARN cluster: a ResourceManager and three
// NodeManagers with 4 fake GPUs each.
func yarn(ctx context.Context) error {
	opt := privateyarn.Options{Nodes: yarnNodes, GPUs: yarnGPUs, Queues: []string{"batch", "vision", "speech"}, ThemisTOML: yarnConfig}
	fmt.Println("== under Themis: a ResourceManager with themis-yarn.jar, three NodeManagers (n1, n2, n3) with 4 fake GPUs each")
	opt.Themis = true
	themis, err := privateyarn.Start(ctx, opt)
	if err != nil {
		return err
	}
	defer themis.Close()
	with, err := yarnPass(ctx, themis, true)
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
	fmt.Println("\n== the same submissions on stock YARN: CapacityScheduler, the same queues")
	opt.Themis = false
	stock, err := privateyarn.Start(ctx, opt)
	if err != nil {
		return err
	}
	defer stock.Close()
	without, err := yarnPass(ctx, stock, false)
	if err != nil {
		return err
	}
	stock.Close()
	table(with, without, refs)
	if keep {
		return yarnStay(ctx, themis)
	}
	return nil
}

// yarnPass submits all applications in turn and follows them to their end, or
// until nothing can change any more.
func yarnPass(ctx context.Context, c *privateyarn.Cluster, withThemis bool) (map[string]result, error) {
	begin := time.Now()
	w := &yarnWatcher{stopwatch: stopwatch(begin), c: c, themis: withThemis, ended: map[uint64]bool{}}
	todo := applications()
	for {
		for len(todo) > 0 && w.served(todo[0].after) {
			a := todo[0]
			todo = todo[1:]
			w.say("%s submits %s to queue %s: %s", a.user, a.name, a.queue, a.what)
			if err := a.submit(c); err != nil {
				return nil, err
			}
			w.apps = append(w.apps, &followed{application: a, since: time.Now()})
		}
		if err := w.look(); err != nil {
			return nil, err
		}
		if len(todo) == 0 && (w.done() || w.stuck()) {
			return w.results(), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(400 * time.Millisecond):
		}
		if time.Since(begin) > 4*time.Minute {
			return nil, errors.New("the applications did not end in time; what the ResourceManager said:\n" + c.Said())
		}
	}
}

// followed is an application and what was seen of it.
type followed struct {
	application
	report privateyarn.Report // the last one; no ID before the ResourceManager knew it
	held   int                // GPUs; containers of an application without
	since  time.Time          // when that changed
	began  bool               // it has had GPUs; a gang, all of them
	whole  bool               // the gang has had all since it last had none
	told   bool               // to give them back
	shown  string             // what the last line was about
}

func (f *followed) over() bool { return f.report.FinishedMs > 0 }

// waitsForMaster says whether not even its master has a container.
func (f *followed) waitsForMaster() bool {
	return !f.over() && f.report.ID != "" && f.report.State != "RUNNING" && f.report.Containers <= 0
}

// need is what held must be for a gang to start, and what that counts.
func (f *followed) need() (n int, unit string) {
	if f.gpus == 0 {
		return f.containers, "containers"
	}
	return f.containers * f.gpus, "GPUs"
}

// yarnWatcher follows the applications and says what changes.
type yarnWatcher struct {
	stopwatch
	c      *privateyarn.Cluster
	themis bool
	apps   []*followed
	ended  map[uint64]bool // leases of whose end was told
	asked  time.Time       // when the core was last asked for its leases
}

// served says whether all of these have had GPUs or are gangs that wait for them.
func (w *yarnWatcher) served(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(w.apps, func(f *followed) bool { return f.name == name && (f.began || f.gang && f.shown != "") })
	})
}

func (w *yarnWatcher) look() error {
	reports, err := w.c.Apps()
	if err != nil {
		return err
	}
	if err := w.endings(); err != nil {
		return err
	}
	for _, f := range w.apps {
		i := slices.IndexFunc(reports, func(r privateyarn.Report) bool { return r.Name == f.name })
		if i < 0 {
			if err := w.c.ShellFailed(f.name); err != nil {
				return err
			}
			continue
		}
		f.report = reports[i]
		if err := w.see(f); err != nil {
			return err
		}
	}
	return nil
}

// endings says which leases end under a running gang, and why.
func (w *yarnWatcher) endings() error {
	if !w.themis || time.Since(w.asked) < time.Second {
		return nil
	}
	w.asked = time.Now()
	raw, err := w.c.Themis("leases", "--json")
	if err != nil {
		return nil // the core is still on its way up
	}
	var leases []bridge.Lease
	if err := json.Unmarshal([]byte(raw), &leases); err != nil {
		return err
	}
	for _, l := range leases {
		if l.State != "ending" || w.ended[l.ID] {
			continue
		}
		w.ended[l.ID] = true
		w.say("%s is told to give its GPUs back: %s", l.App, l.Reason)
		for _, f := range w.apps {
			f.told = f.told || f.user+"/"+f.name == l.App
		}
	}
	return nil
}

// see takes in what has changed of an application and says it.
func (w *yarnWatcher) see(f *followed) error {
	var on map[string]int
	if f.gpus > 0 && f.report.State == "RUNNING" {
		var err error
		if on, err = w.c.GPUs(f.report.ID); err != nil {
			return err
		}
	}
	held := 0
	for _, n := range on {
		held += n
	}
	if f.gpus == 0 {
		held = max(f.report.Containers-1, 0) // without its master
	}
	need, _ := f.need()
	if held != f.held {
		f.held, f.since = held, time.Now()
	}
	f.began = f.began || held > 0 && (!f.gang || held == need)
	f.whole = held > 0 && (f.whole || held == need)
	about, line := w.line(f, on)
	if about != "" && about != f.shown {
		f.shown = about
		w.say("%s/%s %s", f.user, f.name, line)
	}
	return nil
}

// settled is how long a part of a gang is held before it is worth a line,
// masterless for how long a master has no container.
const (
	settled    = 3 * time.Second
	masterless = 8 * time.Second
)

// line says how an application is, and what that is about: the same is said once,
// not each time its numbers move. Both are "" if there is nothing to tell.
func (w *yarnWatcher) line(f *followed, on map[string]int) (about, line string) {
	need, unit := f.need()
	switch {
	case f.over() && f.report.FinalStatus == "SUCCEEDED":
		return "done", "is done"
	case f.over():
		return "failed", "ended as " + f.report.FinalStatus + ": " + f.report.Diagnostics
	case f.waitsForMaster() && time.Since(f.since) > masterless:
		return "master", "waits: even its master, which needs no GPU, has no container yet"
	case f.report.State != "RUNNING": // its master is on its way up
		return "", ""
	case f.began && (!f.gang || f.gpus == 0):
		return "runs", "runs"
	case f.whole && f.held < need, f.began && f.held == 0 && !f.told: // its containers end one by one
		return "", ""
	case f.whole && f.told && strings.HasPrefix(f.shown, "saved"):
		return "on", fmt.Sprintf("goes on at %.0f%% on %s", f.report.Progress, w.nodes(on))
	case f.whole && f.shown != "on":
		return "starts", "starts whole on " + w.nodes(on)
	case f.whole:
		return "", ""
	case f.held > 0 && time.Since(f.since) < settled: // they land one by one, too
		return "", ""
	case f.held > 0:
		return fmt.Sprint("part", f.held), fmt.Sprintf("holds %d of its %d %s, idle, and waits for the rest", f.held, need, unit)
	}
	about, line = "waits", "waits"
	if f.began {
		about, line = "saved", fmt.Sprintf("has saved at %.0f%%, gave its GPUs back and waits", f.report.Progress)
	}
	if _, why, ok := strings.Cut(f.report.Diagnostics, "Waiting for GPUs: "); ok {
		why, _, _ = strings.Cut(why, "; next")
		about, line = about+" for", line+": "+why
	} else if w.themis { // it has asked a moment ago
		return "", ""
	}
	return about, line
}

// nodes shows GPUs by node, n1 being the first.
func (w *yarnWatcher) nodes(on map[string]int) string {
	var parts []string
	for i := range yarnNodes {
		if n := on[w.c.NodeName(i)]; n > 0 {
			parts = append(parts, fmt.Sprintf("n%d:%d", i+1, n))
		}
	}
	return strings.Join(parts, " ")
}

func (w *yarnWatcher) done() bool {
	return !slices.ContainsFunc(w.apps, func(f *followed) bool { return !f.over() })
}

// hopeless is for how long nothing has moved when a stock pass is given up.
const hopeless = 15 * time.Second

// stuck says whether all that is left are gangs that hold a part of what they need,
// or nothing, and wait for what the others hold; then it says so.
func (w *yarnWatcher) stuck() bool {
	if w.themis {
		return false
	}
	var holders []string
	held := 0
	for _, f := range w.apps {
		if f.over() {
			continue
		}
		if !f.gang || f.whole || time.Since(f.since) < hopeless || f.report.State != "RUNNING" && !f.waitsForMaster() {
			return false
		}
		need, unit := f.need()
		holders = append(holders, fmt.Sprintf("%s has %d of %d %s", f.name, f.held, need, unit))
		if f.gpus > 0 {
			held += f.held
		}
	}
	w.say("deadlock: %d GPUs are free; %s, and nobody gives way; given up after %.0f s in which nothing moved",
		yarnNodes*yarnGPUs-held, strings.Join(holders, ", "), hopeless.Seconds())
	return true
}

func (w *yarnWatcher) results() map[string]result {
	out := map[string]result{}
	for _, f := range w.apps {
		name := f.name
		if f.gpus == 0 {
			name = ""
		}
		r := result{submit: time.UnixMilli(f.report.StartedMs)}
		if f.over() {
			r.end = time.UnixMilli(f.report.FinishedMs)
		}
		out[name] = r
	}
	return out
}

// yarnStay prints how to use the cluster and waits for Ctrl-C.
func yarnStay(ctx context.Context, c *privateyarn.Cluster) error {
	shell, err := c.ShellCommand()
	if err != nil {
		return err
	}
	fmt.Printf(`
The cluster under Themis runs on until Ctrl-C; its page is %s. In another terminal:
  export THEMIS_SOCKET=%s HADOOP_USER_NAME=erin
  %s -queue vision -num_containers 2 -container_resources yarn.io/gpu=2 -shell_command sleep -shell_args 60
  themis status    # build/bin/themis, unless it is installed
`, c.WebPage(), c.SocketPath(), shell)
	<-ctx.Done()
	fmt.Println()
	return nil
}
