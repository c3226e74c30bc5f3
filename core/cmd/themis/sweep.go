// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"themis/core/sim"
)

// axes are the flags of sim that a sweep takes lists of, in the order of its
// cells: traces first, then these; the last changes fastest.
var axes = []string{"cluster", "jobs", "estimates", "entity", "error", "restart", "checkpoint", "mtbf", "lease", "f", "target", "aim", "seed", "policy"}

// fixed are sim's other flags: one value for all cells.
var fixed = []string{"format", "lenient", "mix", "lie"}

const (
	gridFile  = "sweep.json"
	cellsMost = 100_000
)

// cell is one run: a trace and a value for each flag of sim, one policy.
type cell struct {
	Trace      string            `json:"trace"` // name of its file, with the archive's member
	TraceSum   string            `json:"trace_sha256"`
	ClusterSum string            `json:"cluster_sha256,omitempty"` // of a cluster that is a file
	Flags      map[string]string `json:"flags"`

	// Where the files are: in the grid only, so that results do not depend on it.
	TracePath   string `json:"trace_path,omitempty"`
	ClusterPath string `json:"cluster_path,omitempty"`
}

// grid is what sweep.json holds.
type grid struct {
	Version string `json:"version"` // of the program that planned it
	Cells   []cell `json:"cells"`
}

// played is what a cell's file holds.
type played struct {
	Cell   cell        `json:"cell"`
	Result *sim.Result `json:"result"`
}

type sweep struct {
	grid
	shown string // the folder as the user wrote it
	dir   string
	loads loads
}

func newSweep(a *app) *cobra.Command {
	var out, on string
	var resume bool
	var n int
	var jobs arrayFlags
	lists := map[string]*[]string{}
	one := simCommand(&simFlags{})
	c := &cobra.Command{
		Use:   "sweep TRACE... --out DIR",
		Short: "sim over a grid of settings: on all cores, or as a Slurm job array",
		Long: "sweep plays every combination of traces, clusters, policies and settings; a flag that takes several values\n" +
			"is repeated, or they are separated by commas. Each combination, a cell, writes one file into DIR; the same\n" +
			"cell always has the same name and bytes. What was stopped goes on with --resume: cells that are done are kept.\n" +
			"DIR/" + gridFile + " has the cells in order.\n" +
			"With --on slurm each cell is a task of a job array of one CPU and no GPU, on the cluster that sbatch submits to.\n" +
			"DIR, the traces and this program must lie on a file system that its nodes share.",
		Example: "  themis sim sweep jobs.txt --out sweep --cluster nodes.csv --f 0,0.5,0.8 --lease 5m,10m,20m --policy themis\n" +
			"  themis sim sweep --out sweep --resume\n" +
			"  themis sim sweep a.csv b.csv --out sweep --seed 1,2,3 --on slurm --wait --sbatch \"--partition=cpu --time=1:00:00\"",
		RunE: func(c *cobra.Command, args []string) error {
			given := len(args) > 0
			for _, f := range slices.Concat(axes, fixed) {
				if c.Flags().Changed(f) && !given {
					return usageError{fmt.Errorf("--%s without a TRACE\nhint: name the traces; to go on with a sweep, --out DIR --resume is enough", f)}
				}
			}
			alone := c.Flags().Changed("cell")
			switch {
			case out == "":
				return usageError{errors.New("--out is missing\nhint: --out DIR is where the results go, one file per cell")}
			case on != "local" && on != "slurm":
				return usageError{fmt.Errorf("--on %q: want local, slurm", on)}
			case on == "local" && (jobs.wait || jobs.atOnce != 0 || len(jobs.sbatch) > 0):
				return usageError{errors.New("--wait, --at-once and --sbatch go with --on slurm")}
			case alone && (given || on == "slurm"):
				return usageError{errors.New("--cell takes all but --out from DIR/" + gridFile)}
			case !alone && !given && !resume:
				return usageError{errors.New("no TRACE\nhint: name the traces, or say --resume to go on with the sweep in DIR")}
			}
			if err := jobs.check(); err != nil {
				return err
			}
			var cells []cell
			if given {
				var err error
				if cells, err = plan(args, lists, one); err != nil {
					return err
				}
			}
			s, err := openSweep(out, cells, resume)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
			if alone {
				return s.single(ctx, n)
			}
			todo := s.missing()
			var failed map[int]error
			switch {
			case len(todo) == 0:
			case on == "slurm":
				sent, err := s.submit(todo, &jobs)
				if err != nil || !jobs.wait {
					return errors.Join(s.printSent(a, sent, todo), err)
				}
				if err := s.await(ctx, sent, todo); err != nil {
					return err
				}
				failed = s.complaints(sent)
			default:
				if failed = s.local(ctx, todo); ctx.Err() != nil {
					return fmt.Errorf("stopped: %d of %d cells are done\nhint: %s goes on", len(s.Cells)-len(s.missing()), len(s.Cells), s.again())
				}
			}
			return s.report(a, failed)
		},
	}
	for _, name := range axes {
		f := one.Flags().Lookup(name)
		var def []string
		if f.DefValue != "" {
			def = strings.Split(f.DefValue, ",")
		}
		lists[name] = c.Flags().StringSlice(name, def, f.Usage+"; a list")
	}
	for _, name := range fixed {
		c.Flags().AddFlag(one.Flags().Lookup(name))
	}
	c.Flags().StringVar(&out, "out", "", "the results' `DIR`")
	c.Flags().BoolVar(&resume, "resume", false, "play what is missing in DIR; traces and settings may be left out")
	c.Flags().IntVar(&n, "cell", 0, "play the cell of this number, from 0, of DIR/"+gridFile+"; for tasks of job arrays")
	c.Flags().StringVar(&on, "on", "local", "where: local, slurm")
	jobs.register(c)
	return c
}

// simCommand has the flags of sim, and nothing else.
func simCommand(f *simFlags) *cobra.Command {
	c := &cobra.Command{}
	f.register(c)
	return c
}

// openSweep makes the folder and writes the grid, or reads it where there are no cells.
func openSweep(shown string, cells []cell, resume bool) (*sweep, error) {
	dir, err := filepath.Abs(shown)
	if err != nil {
		return nil, err
	}
	s := &sweep{shown: shown, dir: dir}
	path := filepath.Join(dir, gridFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(raw, &s.grid); err != nil {
			err = fmt.Errorf("%s: %w\nhint: name traces and settings again, with --resume, to write it anew", path, err)
		}
	}
	if cells == nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, usageError{fmt.Errorf("%w\nhint: DIR must be a sweep's folder; on the node of a Slurm job it must be on a shared file system", err)}
		}
		if resume && s.Version != version {
			fmt.Fprintf(os.Stderr, "note: this sweep was planned by version %s, this is %s\n", s.Version, version)
		}
		return s, err
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 && !resume {
		return nil, usageError{fmt.Errorf("%s is not empty\nhint: --resume plays what is missing in it; another sweep needs another --out", shown)}
	}
	if err == nil && !slices.EqualFunc(s.Cells, cells, func(a, b cell) bool { return a.file() == b.file() }) {
		return nil, usageError{fmt.Errorf("%s holds another sweep\nhint: %s goes on with it; another sweep needs another --out", shown, s.again())}
	}
	s.grid = grid{version, cells}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	raw, err = json.MarshalIndent(s.grid, "", " ")
	if err != nil {
		return nil, err
	}
	return s, replace(path, append(raw, '\n'))
}

// replace writes a file whole or not at all.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// again is the command that goes on with the sweep.
func (s *sweep) again() string { return "'themis sim sweep --out " + quoted(s.shown) + " --resume'" }

// done reads a cell's file; nil if it is not there, broken, or of other settings.
func (s *sweep) done(i int) (*played, []byte) {
	c := &s.Cells[i]
	raw, err := os.ReadFile(filepath.Join(s.dir, c.file()))
	var p played
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Result == nil || len(p.Result.Policies) != 1 || p.Cell.file() != c.file() {
		return nil, nil
	}
	return &p, raw
}

func (s *sweep) missing() (todo []int) {
	for i := range s.Cells {
		if p, _ := s.done(i); p == nil {
			todo = append(todo, i)
		}
	}
	return todo
}

// single plays one cell, unless it is done.
func (s *sweep) single(ctx context.Context, i int) error {
	if i < 0 || i >= len(s.Cells) {
		return usageError{fmt.Errorf("--cell %d: the sweep has cells 0 to %d", i, len(s.Cells)-1)}
	}
	if p, _ := s.done(i); p != nil {
		fmt.Printf("cell %d is done: %s\n", i, s.Cells[i].file())
		return nil
	}
	if err := s.local(ctx, []int{i})[i]; err != nil {
		return err
	}
	fmt.Printf("cell %d: %s\n", i, s.Cells[i].file())
	return nil
}

// local plays cells on all cores and tells which failed.
func (s *sweep) local(ctx context.Context, todo []int) map[int]error {
	p := newProgress(os.Stderr)
	failed := map[int]error{}
	s.loads.expect(s.Cells, todo)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(todo)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if err := s.play(ctx, i, p, 1/float64(len(todo))); err != nil {
					mu.Lock()
					failed[i] = err
					mu.Unlock()
				}
			}
		}()
	}
	for _, i := range todo {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	p.done()
	return failed
}

// play plays a cell and writes its file; stopped midway it writes none.
func (s *sweep) play(ctx context.Context, i int, p *progress, share float64) error {
	c := &s.Cells[i]
	f, err := c.settings()
	if err != nil {
		return err
	}
	t, cluster, err := s.loads.load(c, f)
	if err != nil {
		return err
	}
	part, end := p.part(fmt.Sprint(i), share)
	r, err := f.play(ctx, t, cluster, false, part)
	end()
	if ctx.Err() != nil {
		return errors.New("stopped")
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(played{c.settled(), r})
	if err != nil {
		return err
	}
	return replace(filepath.Join(s.dir, c.file()), append(raw, '\n'))
}

// part is a bar that only counts, and hands on to p what it has counted.
func (p *progress) part(task string, share float64) (part *progress, end func()) {
	if p.out == nil {
		return p, func() {}
	}
	part = &progress{out: p.out, parts: map[string]float64{}, shown: time.Now().AddDate(100, 0, 0)}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(300 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			part.mu.Lock()
			var sum float64
			for _, x := range part.parts {
				sum += x
			}
			part.mu.Unlock()
			p.set(task, sum*share)
		}
	}()
	return part, func() {
		close(stop)
		<-stopped
		p.set(task, share)
	}
}

// report prints what is done and tells what is not.
func (s *sweep) report(a *app, failed map[int]error) error {
	all := []json.RawMessage{}
	var rows []*played
	missing := map[string][]int{} // by error
	for i := range s.Cells {
		p, raw := s.done(i)
		switch {
		case p != nil && a.json:
			all = append(all, raw)
		case p != nil:
			rows = append(rows, p)
		case failed[i] != nil:
			missing[describe(failed[i])] = append(missing[describe(failed[i])], i)
		default:
			missing["no result"] = append(missing["no result"], i)
		}
	}
	if a.json {
		raw, err := json.Marshal(all)
		if err == nil {
			err = printJSON(raw)
		}
		if err != nil {
			return err
		}
	} else if len(rows) > 0 {
		s.print(rows)
	}
	if len(missing) == 0 {
		return nil
	}
	why := slices.SortedFunc(maps.Keys(missing), func(a, b string) int { return missing[a][0] - missing[b][0] })
	var text strings.Builder
	var n int
	for _, w := range why {
		n += len(missing[w])
		cells := "cell"
		if len(missing[w]) > 1 {
			cells = "cells"
		}
		fmt.Fprintf(&text, "\n%s %s: %s", cells, ranges(missing[w]), strings.ReplaceAll(w, "\n", "\n  "))
	}
	return fmt.Errorf("%d of %d cells have no result%s\nhint: %s tries them again", n, len(s.Cells), text.String(), s.again())
}

// print is the table for people; settings that do not differ are left out, but
// for those that a sweep is mostly of.
func (s *sweep) print(rows []*played) {
	show := []string{"cluster"}
	for _, axis := range axes[1:] {
		values := map[string]bool{}
		for i := range s.Cells {
			values[s.Cells[i].Flags[axis]] = true
		}
		if len(values) > 1 || axis == "lease" || axis == "f" || axis == "policy" {
			show = append(show, axis)
		}
	}
	header := "TRACE " + strings.ToUpper(strings.Join(show, " ")) + " MAX_RHO MEDIAN >1.05 SHARE_RHO GPU-HOURS MAKESPAN JCT_MEAN"
	table(header, func(row func(...any)) {
		for _, p := range rows {
			cells := []any{p.Cell.Trace}
			for _, axis := range show {
				cells = append(cells, dash(brief(p.Cell.Flags[axis])))
			}
			r := &p.Result.Policies[0]
			x := r.Rho["reference"]
			cells = append(cells, x.Max, x.Median, fmt.Sprintf("%.1f%%", 100*x.Unfair), r.Rho["share"].Max,
				fmt.Sprintf("%.1f", r.GPUHours), fmt.Sprintf("%.2fh", r.Makespan), fmt.Sprintf("%.2fh", r.JCTMean))
			if r.Unfinished > 0 {
				cells = append(cells, fmt.Sprintf("%d jobs unfinished", r.Unfinished))
			}
			row(cells...)
		}
	})
}

// ranges writes ascending numbers as sbatch --array takes them: 0-3,7.
func ranges(n []int) string {
	var out []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if j > i {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[j]))
		} else {
			out = append(out, fmt.Sprint(n[i]))
		}
		i = j + 1
	}
	return strings.Join(out, ",")
}
