// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"themis/core/gpu"
)

func TestHealthFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "gpu-health-n1.json")
	h, unlock, err := loadHealth(path)
	if err != nil || !reflect.DeepEqual(h, &gpu.Health{}) {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, _, err := loadHealth(path); err == nil || !strings.Contains(err.Error(), "another check of this node still runs") {
		t.Errorf("two at once: %v", err)
	}
	want := &gpu.Health{Bad: 2, Clean: true, GPUs: []gpu.Known{{UUID: "GPU-1", File: "/dev/nvidia0"}}}
	if err := saveHealth(path, want); err != nil {
		t.Fatal(err)
	}
	unlock()
	if h, unlock, err = loadHealth(path); err != nil || !reflect.DeepEqual(h, want) {
		t.Fatalf("%+v, %v", h, err)
	}
	unlock()
	if err := os.WriteFile(path, []byte(`{"bad":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h, unlock, err = loadHealth(path)
	if err != nil || !reflect.DeepEqual(h, &gpu.Health{}) {
		t.Fatalf("a broken file: %+v, %v", h, err)
	}
	unlock()
}

// TestHealthStuck: as long as a process hangs in the driver no second one is sent there.
func TestHealthStuck(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	sleep.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	start := startOf(sleep.Process.Pid)
	h := &gpu.Health{Stuck: &gpu.Process{PID: sleep.Process.Pid, Start: start}}
	r, err := (&gpusCall{}).read(h)
	if start == "" || err != nil || r.Verdict.State != gpu.Transient || !strings.Contains(r.Verdict.Reason(), "cannot be ended") || h.Stuck == nil {
		t.Errorf("started at %q: %+v, %v", start, r, err)
	}
	sleep.Process.Kill()
	sleep.Wait()
	if got := startOf(sleep.Process.Pid); got == start {
		t.Errorf("it has ended, and yet was started at %s", got)
	}
}

// TestSlurmCommandEnds: a command that hangs is given up, with a child that holds its output, too.
func TestSlurmCommandEnds(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\nsleep 5 & exec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := slurmCommand(ctx, "scontrol", "show", "node", "n1")
	if err == nil || !strings.HasPrefix(err.Error(), "scontrol show node n1: no answer within") || time.Since(start) > 4*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
