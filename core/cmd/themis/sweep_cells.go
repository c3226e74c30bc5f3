// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"themis/core/trace"
)

// plan lays the grid out. Values are put into one form, so that 0.8 and .80 are
// one cell.
func plan(traces []string, lists map[string]*[]string, one *cobra.Command) ([]cell, error) {
	var cells []cell
	base := map[string]string{}
	for _, name := range fixed {
		base[name] = one.Flags().Lookup(name).Value.String()
	}
	for _, t := range traces {
		if t == "-" {
			return nil, usageError{errors.New("a sweep reads its traces more than once\nhint: write standard input to a file")}
		}
		c := cell{Flags: base}
		var err error
		if c.Trace, c.TracePath, c.TraceSum, err = locate(t); err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	for _, axis := range axes {
		values, err := canonical(axis, *lists[axis])
		if err != nil {
			return nil, err
		}
		if len(cells)*len(values) > cellsMost {
			return nil, usageError{fmt.Errorf("the grid has more than %d cells\nhint: several sweeps, each with a DIR of its own", cellsMost)}
		}
		var next []cell
		for _, c := range cells {
			for _, v := range values {
				d := c
				d.Flags = maps.Clone(c.Flags)
				if axis == "cluster" && !clusterForm.MatchString(v) {
					if v, d.ClusterPath, d.ClusterSum, err = locate(v); err != nil {
						return nil, err
					}
				}
				d.Flags[axis] = v
				next = append(next, d)
			}
		}
		cells = next
	}
	seen := map[string]bool{}
	var out []cell
	for _, c := range cells {
		if _, err := c.settings(); err != nil {
			return nil, err
		}
		if name := c.file(); !seen[name] {
			seen[name] = true
			out = append(out, c)
		}
	}
	return out, nil
}

// clusterForm is that of clusters which are no files.
var clusterForm = regexp.MustCompile(`^[0-9]+([xX][0-9]+)?$`)

func canonical(axis string, values []string) ([]string, error) {
	if axis == "policy" {
		f := simFlags{policy: strings.Join(values, ",")}
		return f.names()
	}
	if len(values) == 0 {
		values = []string{""}
	}
	var out []string
	flags := simCommand(&simFlags{}).Flags()
	for _, v := range values {
		if err := flags.Set(axis, strings.TrimSpace(v)); err != nil {
			return nil, usageError{err}
		}
		out = append(out, flags.Lookup(axis).Value.String())
	}
	return out, nil
}

// locate tells a file's name without folder, where it is, and its content's
// hash; "FILE:MEMBER" is part of an archive.
func locate(spec string) (name, path, sum string, err error) {
	file, member := spec, ""
	if _, err := os.Stat(spec); err != nil {
		if i := strings.LastIndexByte(spec, ':'); i > 0 {
			file, member = spec[:i], spec[i:]
		}
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", "", "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", "", "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return filepath.Base(file) + member, file + member, hex.EncodeToString(h.Sum(nil)), err
}

// settings are the cell's flags, checked as far as that goes without the trace.
func (c *cell) settings() (*simFlags, error) {
	f := &simFlags{}
	flags := simCommand(f).Flags()
	for name, v := range c.Flags {
		if err := flags.Set(name, v); err != nil {
			return nil, usageError{err}
		}
	}
	if c.ClusterPath != "" {
		f.cluster = c.ClusterPath
	}
	cluster, err := trace.OpenCluster(f.cluster)
	if err != nil {
		return nil, err
	}
	var use usageError
	if _, _, err := f.load(""); errors.As(err, &use) { // it looks at the flags first
		return nil, use
	}
	t := &trace.Trace{}
	if f.mix != "" {
		if err := t.Mix(f.mix, f.Seed); err != nil {
			return nil, usageError{err}
		}
	}
	o := f.Options
	o.Lies = nil // they need the trace
	if err := o.Check(t, cluster); err != nil {
		return nil, usageError{err}
	}
	return f, nil
}

// settled is the cell without the places of its files.
func (c cell) settled() cell {
	c.TracePath, c.ClusterPath = "", ""
	return c
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// slug names the cell for people.
func (c *cell) slug() string {
	f := c.Flags
	s := []string{strings.SplitN(c.Trace, ".", 2)[0], f["cluster"], "lease" + brief(f["lease"]), "f" + f["f"], "seed" + f["seed"], f["policy"]}
	for i := range s {
		s[i] = strings.Trim(unfit.ReplaceAllString(s[i], "-"), "-.")
		s[i] = s[i][:min(len(s[i]), 40)]
	}
	return strings.Join(s, "_")
}

// file is the name of the cell's file: equal settings, equal name.
func (c *cell) file() string {
	raw, err := json.Marshal(c.settled())
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(raw)
	return c.slug() + "-" + hex.EncodeToString(sum[:6]) + ".json"
}

// brief is a duration's text without what is zero at its end.
func brief(d string) string {
	for _, end := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(d, end) {
			d = d[:len(d)-2]
		}
	}
	return d
}

// loads keeps traces and clusters while there are cells that need them.
type loads struct {
	mu   sync.Mutex
	left map[string]int
	kept map[string]*loaded
}

type loaded struct {
	once    sync.Once
	trace   *trace.Trace
	cluster *trace.Cluster
	err     error
}

// loadKey names what a cell loads.
func (c *cell) loadKey() string {
	key := []string{c.TracePath, c.Flags["cluster"], c.ClusterPath, c.Flags["jobs"]}
	if c.Flags["mix"] != "" {
		key = append(key, c.Flags["seed"])
	}
	return fmt.Sprintf("%q", key)
}

func (l *loads) expect(cells []cell, todo []int) {
	l.left, l.kept = map[string]int{}, map[string]*loaded{}
	for _, i := range todo {
		l.left[cells[i].loadKey()]++
	}
}

func (l *loads) load(c *cell, f *simFlags) (*trace.Trace, *trace.Cluster, error) {
	key := c.loadKey()
	l.mu.Lock()
	x := l.kept[key]
	if x == nil {
		x = &loaded{}
		l.kept[key] = x
	}
	if l.left[key]--; l.left[key] == 0 {
		delete(l.kept, key)
	}
	l.mu.Unlock()
	x.once.Do(func() {
		if x.err = errors.Join(unchanged(c.TracePath, c.TraceSum), unchanged(c.ClusterPath, c.ClusterSum)); x.err == nil {
			g := *f
			x.trace, x.cluster, x.err = g.load(c.TracePath)
		}
	})
	if x.err != nil {
		return nil, nil, x.err
	}
	return x.trace, x.cluster, f.Check(x.trace, x.cluster)
}

func unchanged(path, sum string) error {
	if path == "" {
		return nil
	}
	_, _, now, err := locate(path)
	if err == nil && now != sum {
		err = fmt.Errorf("%s has changed since the sweep began\nhint: put the old file back, or begin another sweep with another --out", path)
	}
	return err
}
