// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// result is one run of a simulator as a process.
type result struct {
	wall, cpu      time.Duration
	mb             float64 // most memory held at once, MiB
	jobs           int
	events         int     // 0: not known
	jct            float64 // hours, mean; 0: not known
	killed, failed bool
	log            string // what it printed
}

func (r *result) seconds() string {
	if r.killed {
		return fmt.Sprintf(">%.0f", r.wall.Seconds())
	}
	return fmt.Sprintf("%.2f", r.wall.Seconds())
}

func (r *result) rate() float64 { return float64(r.events) / r.wall.Seconds() }

// run starts a process on one core, with its output in files, and kills it and
// its children at the limit. An end with an error is no error of run.
func run(ctx context.Context, limit time.Duration, log string, name string, args ...string) (*result, error) {
	stdout, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := os.Create(log + ".err")
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(limited, name, args...)
	c.Stdout, c.Stderr = stdout, stderr
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	begin := time.Now()
	err = c.Run()
	r := &result{wall: time.Since(begin), log: log + ".err"}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	r.killed = limited.Err() != nil
	r.failed = err != nil && !r.killed
	r.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	r.mb = float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024 // Linux counts KiB
	return r, nil
}

// themis plays one policy with ours, several times if that takes little.
func themis(ctx context.Context, o options, folder string, w *workload, policy string) (*result, error) {
	log := filepath.Join(folder, w.name+"-themis-"+policy)
	var list []*result
	for range max(o.runs, 1) {
		r, err := run(ctx, o.limit, log, o.bin, "sim", w.path, "--cluster", w.cluster(), "--lease", lease.String(), "--policy", policy, "--json")
		if err != nil {
			return nil, err
		}
		if r.failed {
			return nil, fmt.Errorf("themis sim %s --policy %s failed: see %s", w.path, policy, r.log)
		}
		if err := r.read(log); err != nil {
			return nil, err
		}
		list = append(list, r)
		if r.wall > 10*time.Second {
			break
		}
	}
	slices.SortFunc(list, func(a, b *result) int { return int(a.wall - b.wall) })
	return list[len(list)/2], nil
}

// read takes the figures from what `themis sim --json` printed.
func (r *result) read(path string) error {
	if r.killed {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var said struct {
		Jobs     int `json:"jobs"`
		Policies []struct {
			Events int     `json:"events"`
			JCT    float64 `json:"jct_mean_h"`
		} `json:"policies"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(said.Policies) != 1 {
		return fmt.Errorf("%s: has %d policies, not 1", path, len(said.Policies))
	}
	r.jobs, r.events, r.jct = said.Jobs, said.Policies[0].Events, said.Policies[0].JCT
	return nil
}
