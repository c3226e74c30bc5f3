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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// arrayFlags are those of a sweep that runs as a Slurm job array.
type arrayFlags struct {
	wait   bool
	atOnce int
	sbatch []string
}

func (j *arrayFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&j.wait, "wait", false, "with --on slurm: wait for the job array, then print the table")
	c.Flags().IntVar(&j.atOnce, "at-once", 0, "with --on slurm: most tasks at once (default: as many as Slurm starts)")
	c.Flags().StringArrayVar(&j.sbatch, "sbatch", nil, "with --on slurm: further `OPTIONS` of sbatch, separated by blanks")
}

var gpuOption = regexp.MustCompile(`(?i)(^|\s)(-G|--gpus|--(gres|tres)\S*[= ]\S*gpu)`)

func (j *arrayFlags) check() error {
	if j.atOnce < 0 {
		return usageError{fmt.Errorf("--at-once %d: want at least 1", j.atOnce)}
	}
	if gpuOption.MatchString(strings.Join(j.sbatch, " ")) {
		return usageError{errors.New("--sbatch: a sweep needs no GPUs\nhint: leave them to those who train")}
	}
	return nil
}

// array is a submitted job array: task n plays cell offset+n.
type array struct {
	id     string
	offset int
	cells  []int
}

// script is what each task runs.
const script = `#!/bin/sh
#SBATCH --job-name=themis-sweep
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
export GOMAXPROCS=1
exec %s sim sweep --out %s --cell "$((SLURM_ARRAY_TASK_ID + %d))"
`

// submit submits cells, in as many arrays as Slurm's MaxArraySize makes
// necessary.
func (s *sweep) submit(todo []int, j *arrayFlags) (sent []array, err error) {
	if _, err := exec.LookPath("sbatch"); err != nil {
		return nil, errors.New("no sbatch here\nhint: run it where jobs are submitted, or leave --on out to use this machine's cores")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.logs(), 0o755); err != nil {
		return nil, err
	}
	most, err := strconv.Atoi(slurmConfig("MaxArraySize"))
	if err != nil || most < 2 {
		most = 1001 // Slurm's default
	}
	for len(todo) > 0 {
		a := array{offset: todo[0] / most * most}
		var tasks []int
		for len(todo) > 0 && todo[0] < a.offset+most {
			a.cells, tasks, todo = append(a.cells, todo[0]), append(tasks, todo[0]-a.offset), todo[1:]
		}
		args := []string{"--parsable"}
		for _, o := range j.sbatch {
			args = append(args, strings.Fields(o)...)
		}
		spec := ranges(tasks)
		if j.atOnce > 0 {
			spec += fmt.Sprintf("%%%d", j.atOnce)
			if len(sent) > 0 {
				args = append(args, "--dependency=afterany:"+sent[len(sent)-1].id)
			}
		}
		args = append(args, "--array="+spec, "--output="+strings.ReplaceAll(s.logs(), "%", "%%")+"/%A_%a.txt")
		var out, complaint bytes.Buffer
		c := exec.Command("sbatch", args...)
		c.Env = plainEnv()
		c.Stdin = strings.NewReader(fmt.Sprintf(script, quoted(exe), quoted(s.dir), a.offset))
		c.Stdout, c.Stderr = &out, &complaint
		if err := c.Run(); err != nil {
			return sent, fmt.Errorf("sbatch %s: %w: %s\nhint: options of sbatch, as a partition or a time limit, go into --sbatch \"...\"; %s, with --on slurm, submits what is missing",
				strings.Join(args, " "), err, strings.TrimSpace(complaint.String()), s.again())
		}
		a.id, _, _ = strings.Cut(strings.TrimSpace(out.String()), ";")
		sent = append(sent, a)
		fmt.Fprintf(os.Stderr, "job %s: %d cells\n", a.id, len(a.cells))
	}
	fmt.Fprintf(os.Stderr, "note: %s, the traces and %s must be at these places on the cluster's nodes, too\n", s.dir, exe)
	return sent, nil
}

func (s *sweep) logs() string { return filepath.Join(s.dir, "log") }

// plainEnv is the environment without what would give the job GPUs or change
// what sbatch and squeue print.
func plainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		sbatch := strings.HasPrefix(name, "SBATCH_")
		if sbatch && (strings.Contains(name, "GPU") || strings.Contains(name, "GRES") || strings.Contains(name, "TRES") ||
			name == "SBATCH_ARRAY_INX" || name == "SBATCH_WAIT") || strings.HasPrefix(name, "SQUEUE_") {
			continue
		}
		env = append(env, e)
	}
	return env
}

// printSent says what was submitted.
func (s *sweep) printSent(a *app, sent []array, todo []int) error {
	if len(sent) == 0 {
		return nil
	}
	if !a.json {
		fmt.Printf("submitted job %s: %d cells; when it is done, %s prints the table\n", ids(sent), len(todo), s.again())
		return nil
	}
	raw, err := json.Marshal(map[string]any{"jobs": strings.Split(ids(sent), ","), "cells": len(todo)})
	if err != nil {
		return err
	}
	return printJSON(raw)
}

func ids(sent []array) string {
	var out []string
	for _, a := range sent {
		out = append(out, a.id)
	}
	return strings.Join(out, ",")
}

// await returns when no task is left in the queue. A slurmctld that does not
// answer is waited for.
func (s *sweep) await(ctx context.Context, sent []array, todo []int) error {
	p := newProgress(os.Stderr)
	defer p.done()
	for pause := time.Second; ; pause = min(pause*3/2, 15*time.Second) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped waiting; the job goes on\nhint: %s prints the table when it is done; scancel %s ends it", s.again(), strings.ReplaceAll(ids(sent), ",", " "))
		case <-time.After(pause):
		}
		c := exec.CommandContext(ctx, "squeue", "-h", "-j", ids(sent), "-o", "%i")
		c.Env = plainEnv()
		out, err := c.CombinedOutput()
		if err == nil && len(bytes.TrimSpace(out)) == 0 || bytes.Contains(out, []byte("Invalid job id")) {
			return nil
		}
		p.set("", s.written(todo))
	}
}

// written is the share of cells that have a file.
func (s *sweep) written(todo []int) float64 {
	entries, _ := os.ReadDir(s.dir)
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	var n float64
	for _, i := range todo {
		if there[s.Cells[i].file()] {
			n++
		}
	}
	return n / float64(len(todo))
}

// complaints are what the tasks have written, by cell; of use for those without
// a result.
func (s *sweep) complaints(sent []array) map[int]error {
	os.ReadDir(s.dir) // lets NFS look again
	out := map[int]error{}
	for _, a := range sent {
		for _, i := range a.cells {
			raw, _ := os.ReadFile(filepath.Join(s.logs(), fmt.Sprintf("%s_%d.txt", a.id, i-a.offset)))
			text := strings.TrimPrefix(strings.TrimSpace(string(raw)), "themis: ")
			if text == "" {
				text = "its task of job " + a.id + " was cancelled or did not start\nhint: sacct -j " + a.id + " may tell"
			}
			out[i] = errors.New(text[max(0, len(text)-1000):])
		}
	}
	return out
}

// quoted is text as a shell takes it.
func quoted(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:=@%+-]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
