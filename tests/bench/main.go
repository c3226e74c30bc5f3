// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Themis costs slurmctld: the same jobs go through
// a private cluster with our plugins and through one with stock cons_tres and
// multifactor, in one run, and the ratios are printed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"themis/bridge"
	"themis/tests/privateslurm"
)

const config = `
[auction]
settle = "100ms"
[host]
tick = "1s"
`

// figures of one pass.
type figures struct {
	JobsPerMinute float64           `json:"jobs_per_minute"`
	MainMean      float64           `json:"main_scheduler_cycle_mean_us"`
	MainMax       float64           `json:"main_scheduler_cycle_max_us"`
	BackfillMean  float64           `json:"backfill_cycle_mean_us"`
	Submit        float64           `json:"submissions_per_second"`
	Hooks         []bridge.HookTime `json:"hooks,omitempty"`
}

func main() {
	out := flag.String("out", "", "folder for bench.json")
	jobs := flag.Int("jobs", 320, "jobs of the throughput run, 1 GPU and -seconds each on 32 GPUs")
	seconds := flag.Int("seconds", 5, "length of those jobs")
	pending := flag.Int("pending", 2000, "pending GPU jobs while cycles are measured")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := bench(ctx, *out, *jobs, *seconds, *pending); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

func bench(ctx context.Context, out string, jobs, seconds, pending int) error {
	passes := map[string]*figures{}
	for _, name := range []string{"stock", "themis"} {
		f, err := pass(ctx, name == "themis", jobs, seconds, pending)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		passes[name] = f
	}
	s, t := passes["stock"], passes["themis"]
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tstock\tthemis\tratio\t")
	row := func(name string, a, b float64) {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t\n", name, a, b, b/max(a, 1e-9))
	}
	row(fmt.Sprintf("jobs ended per minute (%d jobs of %d s)", jobs, seconds), s.JobsPerMinute, t.JobsPerMinute)
	row("submissions per second", s.Submit, t.Submit)
	row(fmt.Sprintf("main scheduler cycle, mean us (%d pending)", pending), s.MainMean, t.MainMean)
	row("main scheduler cycle, max us", s.MainMax, t.MainMax)
	row("backfill cycle, mean us", s.BackfillMean, t.BackfillMean)
	w.Flush()
	fmt.Println("\ntime of slurmctld's threads in our hooks:")
	for _, h := range t.Hooks {
		fmt.Printf("  %-18s %8d calls, mean %8.1f us, max %8.1f us\n", h.Name, h.Calls, h.Mean*1e6, h.Max*1e6)
	}
	if out == "" {
		return nil
	}
	raw, err := json.MarshalIndent(passes, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "bench.json"), append(raw, '\n'), 0o644)
}

func pass(ctx context.Context, themis bool, jobs, seconds, pending int) (*figures, error) {
	c, err := privateslurm.Start(ctx, privateslurm.Options{Themis: themis, ThemisTOML: config, CPUs: 64,
		Conf: "SchedulerParameters=bf_interval=5,sched_interval=2,sched_min_interval=0,bf_continue,batch_sched_delay=0,default_queue_depth=1000"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f := &figures{}
	if f.JobsPerMinute, err = throughput(ctx, c, jobs, seconds); err != nil {
		return nil, err
	}
	if f.Submit, err = backlog(ctx, c, pending); err != nil {
		return nil, err
	}
	if _, err := c.Run(ctx, "sdiag", "-r"); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "measuring cycles for 40 s\n")
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(40 * time.Second):
	}
	diag, err := c.Run(ctx, "sdiag")
	if err != nil {
		return nil, err
	}
	main, backfill, _ := strings.Cut(diag, "Backfilling stats")
	f.MainMean, f.MainMax, f.BackfillMean = number(main, "Mean cycle"), number(main, "Max cycle"), number(backfill, "Mean cycle")
	if themis {
		raw, err := c.Themis("status", "--internals", "--json")
		if err != nil {
			return nil, err
		}
		var s bridge.Status
		if err := json.Unmarshal([]byte(raw), &s); err != nil {
			return nil, err
		}
		f.Hooks = s.Internals.Hooks
	}
	return f, nil
}

// throughput runs an array of short jobs to its end.
func throughput(ctx context.Context, c *privateslurm.Cluster, jobs, seconds int) (float64, error) {
	begin := time.Now()
	if _, err := c.Sbatch("alice", fmt.Sprintf("sleep %d", seconds), fmt.Sprintf("--array=1-%d", jobs), "--gres=gpu:1", "-t5", "-o/dev/null",
		fmt.Sprintf("--comment=themis: runtime=%ds", seconds)); err != nil {
		return 0, err
	}
	for {
		out, err := c.Run(ctx, "squeue", "-h", "-r", "-o%T")
		if err != nil {
			return 0, err
		}
		left := strings.Count(out, "\n")
		fmt.Fprintf(os.Stderr, "\r%4d jobs left ", left)
		if left == 0 {
			fmt.Fprintln(os.Stderr)
			return float64(jobs) / time.Since(begin).Minutes(), nil
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// backlog fills the GPUs and queues jobs behind them.
func backlog(ctx context.Context, c *privateslurm.Cluster, pending int) (float64, error) {
	if _, err := c.Sbatch("alice", "sleep 1000", "-N4", "--gres=gpu:8", "-t30"); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second)
	begin := time.Now()
	const lanes = 4
	loop := fmt.Sprintf("for i in $(seq %d); do sbatch -Q --gres=gpu:1 -t30 -o/dev/null --wrap='sleep 5' >/dev/null || exit 1; done", pending/lanes)
	var wg sync.WaitGroup
	errs := make(chan error, lanes)
	for k := range lanes {
		wg.Go(func() {
			if _, err := c.As([]string{"alice", "bob", "carol"}[k%3]).Run(ctx, "bash", "-c", loop); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(pending) / time.Since(begin).Seconds(), nil
	}
}

func number(text, name string) float64 {
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `:\s+(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	return n
}
