// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"themis/bridge"
	"themis/core/gpu"
)

// slurmd ends a health check after 60 s (src/slurmd/slurmd/slurmd.c, run_script_health_check()): limitSlurm
// and endGrace are for NVML, slurmLimit is for all of Slurm's commands together.
const (
	limitSlurm = 20 * time.Second
	slurmLimit = 30 * time.Second
)

// reading is what the process that reads tells the one that acts.
type reading struct {
	NoNVML  string      `json:"no_nvml,omitempty"`
	Verdict gpu.Verdict `json:"verdict"`
	GPUs    []gpu.Known `json:"gpus"`
}

// readingOf judges. A driver that is gone can come back, so that is transient where gres.conf has
// GPUs of its.
func readingOf(m *gpu.Machine, err error, conf gresAt) reading {
	if !errors.Is(err, gpu.ErrNoNVML) {
		return reading{Verdict: gpu.Judge(m, err, conf.Files()), GPUs: gpu.Knows(m)}
	}
	for _, f := range conf.Files() {
		if strings.HasPrefix(f, "/dev/nvidia") {
			return reading{Verdict: gpu.Verdict{State: gpu.Transient, Faults: []gpu.Fault{{GPU: -1, State: gpu.Transient, Reason: f + " is in gres.conf, but there is " + err.Error()}}}}
		}
	}
	return reading{NoNVML: err.Error()}
}

// read has another process read, unless one that did hangs on: there is no second then.
func (q *gpusCall) read(h *gpu.Health) (r reading, err error) {
	hangs := func(reason string) reading {
		return reading{Verdict: gpu.Verdict{State: gpu.Transient, Faults: []gpu.Fault{{GPU: -1, State: gpu.Transient, Reason: reason}}}}
	}
	if p := h.Stuck; p != nil && startOf(p.PID) == p.Start {
		return hangs(fmt.Sprintf("NVML does not return: process %d, which reads it, cannot be ended", p.PID)), nil
	}
	h.Stuck = nil
	var out, said bytes.Buffer
	code, err := q.reader(&out, &said)
	var left stuck
	if errors.As(err, &left) {
		if start := startOf(left.pid); start != "" {
			h.Stuck = &gpu.Process{PID: left.pid, Start: start}
		}
		return hangs(fmt.Sprintf("NVML did not return within %v", q.limit)), nil
	} else if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("the process that reads NVML ended with %d: %s", code, strings.TrimSpace(said.String()))
	}
	return r, nil
}

// startOf is when a process was started, in ticks after boot; "" if there is none.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // proc(5): from the third on
	if err != nil || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// health is --check --slurm: one check of this node, and what follows from it.
func (q *gpusCall) health() error {
	node, err := nodeName()
	if err != nil {
		return err
	}
	if strings.Contains(node, "/") {
		return fmt.Errorf("SLURMD_NODENAME=%s: want a node's name", node)
	}
	conf, err := q.configured()
	if err != nil {
		return err
	}
	path := filepath.Join(q.state, "gpu-health-"+node+".json")
	h, unlock, err := loadHealth(path)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := q.read(h)
	if err != nil {
		return err
	}
	if r.NoNVML != "" {
		fmt.Printf("nothing to check: %s, and no /dev/nvidia file in gres.conf\n", r.NoNVML)
		return nil
	}
	v := r.Verdict
	h.Count(&v, r.GPUs)
	text := q.use(h, r, conf)
	fmt.Println(v.State)
	if v.State != gpu.Healthy {
		fmt.Println(h.Reason(v))
	}
	ctx, cancel := context.WithTimeout(context.Background(), slurmLimit)
	defer cancel()
	err = errors.Join(q.act(ctx, node, h, v, conf), saveHealth(path, h))
	if text != "" {
		tell(ctx, node, text)
	}
	if err != nil {
		return err
	}
	return map[gpu.State]error{gpu.Broken: coded{exitBroken, errors.New("")}, gpu.Transient: coded{exitTransient, errors.New("")}}[v.State]
}

// use is what is to be told of how busy the GPUs were; "" if it is not yet time.
func (q *gpusCall) use(h *gpu.Health, r reading, conf gresAt) string {
	if q.tell == 0 || len(r.GPUs) == 0 {
		return ""
	}
	h.Use.Look(time.Now().UTC().Truncate(time.Second), q.tell, r.GPUs)
	told, of := h.Use.Tell(q.tell, conf.GresFile, r.GPUs)
	if len(told) == 0 {
		return ""
	}
	said := bridge.Use{Of: of, Until: h.Use.Told}
	for _, t := range told {
		said.GPUs = append(said.GPUs, bridge.GPUUse(t))
	}
	return said.String()
}

// tell writes it into the node's Extra, which slurmctld shows to the core. What an admin wrote
// there is left alone.
func tell(ctx context.Context, node, text string) {
	shown, err := slurmCommand(ctx, "scontrol", "show", "node", node)
	if err == nil {
		var n gpu.SlurmNode
		if n, err = gpu.ParseNode(shown); err == nil && n.Extra != "" && !strings.HasPrefix(n.Extra, "themis: ") {
			err = fmt.Errorf("the node's Extra is in use: %q", n.Extra)
		}
	}
	if err == nil {
		_, err = slurmCommand(ctx, "scontrol", "update", "nodename="+node, "extra="+text)
	}
	if err != nil {
		fmt.Printf("how busy the GPUs are is not told: %v\n", err)
	}
}

// act drains, undrains and requeues. Between the look at the node and the change an admin's own change
// may come, and be lost: Slurm has no way to change only what is still as it was.
func (q *gpusCall) act(ctx context.Context, node string, h *gpu.Health, v gpu.Verdict, conf gresAt) error {
	if !h.Asks(v, q.rule) {
		if v.State == gpu.Transient {
			fmt.Printf("check %d of %d in a row before the node is drained\n", h.Bad, q.rule.Bad)
		}
		return nil
	}
	shown, err := slurmCommand(ctx, "scontrol", "show", "node", node)
	if err != nil {
		return err
	}
	n, err := gpu.ParseNode(shown)
	if err != nil {
		return err
	}
	does := h.Decide(v, n, q.rule)
	switch {
	case does == gpu.Drain:
		if _, err = slurmCommand(ctx, "scontrol", "update", "nodename="+node, "state=drain", "reason="+h.Reason(v)); err == nil {
			fmt.Printf("node %s is drained\n", node)
		}
	case does == gpu.Undrain: // unlike resume, it leaves a reboot that was asked for
		if _, err = slurmCommand(ctx, "scontrol", "update", "nodename="+node, "state=undrain"); err == nil {
			fmt.Printf("node %s is undrained after %d healthy checks\n", node, h.Good)
		}
	case n.Ours() && v.State == gpu.Healthy:
		fmt.Printf("healthy check %d of %d in a row before the node is undrained\n", h.Good, q.rule.Good)
	case n.Drained():
		fmt.Printf("node %s is drained already: %s\n", node, n.Reason)
	}
	if n.Idle() {
		return err
	}
	return errors.Join(err, requeue(ctx, node, h, v, conf))
}

// requeue has Slurm start anew the jobs that have a GPU on which nothing can go on.
func requeue(ctx context.Context, node string, h *gpu.Health, v gpu.Verdict, conf gresAt) error {
	gone, ok := h.Gone(v, conf.GresFile)
	if !ok {
		fmt.Println("which jobs use it is not known: gres.conf names no file for it")
	}
	if len(gone) == 0 {
		return nil
	}
	jobs, err := slurmCommand(ctx, "squeue", "--noheader", "--nodelist="+node, "--states=RUNNING,SUSPENDED", "--format=%A")
	if err != nil {
		return err
	}
	var failed []error
	for _, job := range strings.Fields(jobs) {
		detail, err := slurmCommand(ctx, "scontrol", "--details", "show", "job", job)
		if err != nil {
			continue // it has ended meanwhile
		}
		has, err := gpu.DevicesOf(detail, node)
		if err != nil {
			failed = append(failed, fmt.Errorf("job %s: %w", job, err))
			continue
		}
		if !slices.ContainsFunc(has, func(d int) bool { return slices.Contains(gone, d) }) {
			continue
		}
		if !strings.Contains(detail, " Requeue=1 ") || !strings.Contains(detail, " BatchFlag=1 ") {
			fmt.Printf("job %s uses it, and is left alone: it may not be requeued\n", job)
		} else if _, err := slurmCommand(ctx, "scontrol", "requeue", job); err != nil {
			failed = append(failed, err)
		} else {
			fmt.Printf("job %s used it, and is requeued\n", job)
		}
	}
	return errors.Join(failed...)
}

// slurmCommand runs a command of Slurm's. slurmd gives a health check no PATH.
func slurmCommand(ctx context.Context, name string, args ...string) (string, error) {
	path := name
	for _, dir := range filepath.SplitList(os.Getenv("PATH") + ":/usr/local/bin:/usr/bin") {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(found) {
			path = found
			break
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w\nhint: set PATH in the HealthCheckProgram", err)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: no answer within %v", name, strings.Join(args, " "), slurmLimit)
	case err != nil:
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// loadHealth reads what is remembered, and keeps other checks of the node away until unlock.
// What cannot be read is begun anew.
func loadHealth(path string) (h *gpu.Health, unlock func(), err error) {
	h, unlock = &gpu.Health{}, func() {}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		fmt.Printf("nothing is remembered: %v\n", err)
		return h, unlock, nil
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		fmt.Printf("nothing is remembered: %v\n", err)
		return h, unlock, nil
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("another check of this node still runs (%s.lock)", path)
	}
	unlock = func() { lock.Close() }
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, unlock, nil
	}
	if err == nil {
		err = json.Unmarshal(text, h)
	}
	if err != nil {
		fmt.Printf("%s is begun anew: %v\n", path, err)
		h = &gpu.Health{}
	}
	return h, unlock, nil
}

// saveHealth replaces the file in one step.
func saveHealth(path string, h *gpu.Health) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close(), os.Rename(f.Name(), path))
}
