// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"themis/core/sim"
	"themis/core/trace"
)

// workload is a trace, a cluster, and how the jobs are taken.
type workload struct {
	trace   string // a name of traceFiles, or equals
	mix     string // as in trace.Mix; "": as the trace has them
	cluster string
	elastic bool
	flat    bool // places do not matter: S is 1 everywhere
}

// run is a workload under a policy.
type run struct {
	workload
	policy string
	sim.Options
}

// traceFiles is where the traces lie in the folder.
var traceFiles = map[string]string{
	fig19:     "themis/offline_hyperdrive_trace_workload.json",
	philly:    "themis/philly_hyperdrive_workload.csv",
	shockwave: "shockwave/120_multigpu_dynamic.trace",
}

const (
	fig19     = "figure 19"
	philly    = "philly"
	shockwave = "shockwave"
	equals    = "equal apps"
)

// key names a run by all that it depends on but the code.
func (r run) key() string {
	o := r.Options
	lies := make([]string, 0, len(o.Lies))
	for app, by := range o.Lies {
		lies = append(lies, fmt.Sprintf("%s:x%g", app, by))
	}
	sort.Strings(lies)
	return fmt.Sprintf("%+v %s lease=%s f=%g target=%g aim=%s restart=%s seed=%d estimate=%s error=%g mtbf=%s lies=%s",
		r.workload, r.policy, o.Lease, o.F, o.Target, o.Aim, o.Restart, o.Seed, o.Estimate, o.Error, o.MTBF, strings.Join(lies, ","))
}

// weight is for the order in which runs start: the longest first.
func (r run) weight() int {
	n := map[string]int{philly: 8, fig19: 2}[r.trace]
	if r.mix == "w2" {
		n++
	}
	switch r.policy {
	case "themis-paper":
		n += 20
	case ours:
		n += 10
	}
	return n
}

// lab plays runs. The document is written twice: the first time get notes which
// runs it needs, and figures are zero; then all are played, and it is written with
// what they gave.
type lab struct {
	folder   string
	progress io.Writer
	kept     *os.File // results so far, a line each, or nil

	mu      sync.Mutex
	wanted  []run
	results map[string]sim.PolicyResult
	loaded  map[workload]*loaded
}

// loaded is a workload read and its references.
type loaded struct {
	once  sync.Once
	trace *trace.Trace
	on    *trace.Cluster
	refs  []float64
	err   error
}

func (l *lab) get(r run) sim.PolicyResult {
	k := r.key()
	p, ok := l.results[k]
	if !ok && !slices.ContainsFunc(l.wanted, func(o run) bool { return o.key() == k }) {
		l.wanted = append(l.wanted, r)
	}
	return p
}

// load reads a workload once.
func (l *lab) load(w workload) (*loaded, error) {
	l.mu.Lock()
	d := l.loaded[w]
	if d == nil {
		d = &loaded{}
		l.loaded[w] = d
	}
	l.mu.Unlock()
	d.once.Do(func() { d.err = d.read(w, l.folder) })
	return d, d.err
}

func (d *loaded) read(w workload, folder string) (err error) {
	if d.on, err = trace.OpenCluster(w.cluster); err != nil {
		return err
	}
	if w.trace == equals {
		d.trace = equalApps()
	} else if d.trace, err = trace.Open(filepath.Join(folder, filepath.FromSlash(traceFiles[w.trace])), trace.Options{}); err != nil {
		return err
	}
	if w.mix != "" {
		if err := d.trace.Mix(w.mix, 1); err != nil {
			return err
		}
	}
	if d.trace.Rigid(); w.elastic {
		d.trace.Elastic()
	}
	for i := range d.trace.Jobs {
		if w.flat {
			d.trace.Jobs[i].Model, d.trace.Jobs[i].Place = "", []float64{1}
		}
	}
	d.refs = sim.TraceReferences(d.trace, d.on.GPUs())
	return nil
}

// play plays what is wanted, as many runs at once as there are cores.
func (l *lab) play() error {
	slices.SortStableFunc(l.wanted, func(a, b run) int { return b.weight() - a.weight() })
	todo := make(chan int)
	errs := make([]error, len(l.wanted))
	var done int
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range todo {
				errs[i] = l.one(l.wanted[i])
				l.mu.Lock()
				done++
				fmt.Fprintf(l.progress, "%d of %d: %s\n", done, len(l.wanted), l.wanted[i].key())
				l.mu.Unlock()
			}
		}()
	}
	for i := range l.wanted {
		todo <- i
	}
	close(todo)
	wg.Wait()
	return errors.Join(errs...)
}

func (l *lab) one(r run) error {
	d, err := l.load(r.workload)
	if err == nil {
		err = r.Options.Check(d.trace, d.on)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.key(), err)
	}
	o, at := r.Options, time.Now()
	o.Progress = func(_ time.Duration, ended, jobs int) bool {
		if time.Since(at) > 20*time.Second {
			at = time.Now()
			fmt.Fprintf(l.progress, "  %d of %d jobs: %s\n", ended, jobs, r.key())
		}
		return true
	}
	p, err := sim.Play(d.trace, d.on, o, r.policy, d.refs)
	if err != nil {
		return fmt.Errorf("%s: %w", r.key(), err)
	}
	if p.Unfinished > 0 {
		return fmt.Errorf("%s: %d jobs never ended", r.key(), p.Unfinished)
	}
	p.Busy = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results[r.key()] = p
	if l.kept == nil {
		return nil
	}
	return json.NewEncoder(l.kept).Encode(keptRun{r.key(), p})
}

// keptRun is a line of the file of runs.
type keptRun struct {
	Key    string           `json:"key"`
	Result sim.PolicyResult `json:"result"`
}

// keep reads the runs of an earlier call and writes those of this one to the same
// file.
func (l *lab) keep(file string) (err error) {
	if l.kept, err = os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(l.kept))
	for {
		var k keptRun
		if err := in.Decode(&k); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		l.results[k.Key] = k.Result
	}
}

// equalApps are eight apps of eight like jobs that all arrive at once: four times
// what 64 GPUs can run.
func equalApps() *trace.Trace {
	t := &trace.Trace{Name: equals}
	for app := range 8 {
		for job := range 8 {
			t.Jobs = append(t.Jobs, trace.Job{ID: fmt.Sprintf("%d/%d", app+1, job+1), App: fmt.Sprint(app + 1), User: fmt.Sprint("u", app+1),
				GPUs: 4, Runtime: time.Hour, Full: time.Hour})
		}
	}
	return t
}
