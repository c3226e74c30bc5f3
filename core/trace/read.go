// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on what a file may say.
const (
	bytesMost = 1 << 30 // of a file, unpacked
	headMost  = 1 << 16 // of it, to tell its format
	gpusMost  = 1_000_000
	textMost  = 256 // bytes of an id, a name
	timeMost  = 100 * 365 * 24 * time.Hour
)

// jobsMost bounds the jobs of a trace; tests lower it.
var jobsMost = 1_000_000

// Options say how to read. The zero value tells the format by content and stops
// at the first bad row.
type Options struct {
	Format  string // as Formats names it; "" by content
	Lenient bool   // bad rows go to Trace.Skipped
}

// format is a kind of workload file.
type format struct {
	name, about string
	form        string // what a row looks like: the hint of a bad one
	sniff       func(first, head string) bool
	read        func(*input) error
}

// formats in the order in which they are tried: of two that could be meant the
// one that asks for more comes first.
func formats() []format {
	return []format{
		ours, hyperdrive, hyperdriveCSV, philly, elasticFlow, openb, shockwave, sacct, jobcomp, sls, swf,
	}
}

// Formats lists the formats, a name and a description each.
func Formats() []string {
	var list []string
	for _, f := range formats() {
		list = append(list, fmt.Sprintf("%-14s %s", f.name, f.about))
	}
	return list
}

func names() string {
	var list []string
	for _, f := range formats() {
		list = append(list, f.name)
	}
	return strings.Join(list, ", ")
}

// Read reads a workload, also if compressed with gzip. name is that of its file,
// for errors, which are *Error if the file is at fault.
func Read(r io.Reader, name string, o Options) (*Trace, error) {
	data, _, err := unpack(r, name, "")
	if err != nil {
		return nil, err
	}
	return read(data, name, name, o)
}

func read(data []byte, file, title string, o Options) (*Trace, error) {
	in := &input{file: file, data: data, lenient: o.Lenient, seen: map[string]int{}}
	f, err := in.detect(o.Format)
	if err != nil {
		return nil, err
	}
	in.form = f.form
	in.t.Name, in.t.Format = stem(title), f.name
	if err := f.read(in); err != nil {
		return nil, err
	}
	return in.finish()
}

// stem is a file's name without folder and ending.
func stem(path string) string {
	s := strings.TrimSuffix(filepath.Base(path), ".gz")
	return strings.TrimSuffix(s, filepath.Ext(s))
}

// input is a file that is being read.
type input struct {
	file    string
	data    []byte
	lenient bool
	form    string
	epoch   time.Time // of Submit 0 while reading; zero if the file has offsets only
	t       Trace
	lines   []int          // of t.Jobs
	seen    map[string]int // line by id
	left    []leaving
}

// leaving counts jobs left out for one reason, though nothing is wrong with them.
type leaving struct {
	why   string
	count int
}

// errLeft says that a row was left out with leave.
var errLeft = errors.New("left out")

// detect finds the format by name or content, and refuses what is none.
func (in *input) detect(name string) (*format, error) {
	in.data = bytes.TrimPrefix(in.data, []byte("\xef\xbb\xbf"))
	head := in.data[:min(len(in.data), headMost)]
	if err := plain(in.file, head); err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(head))
	first, _, _ := strings.Cut(text, "\n")
	first = strings.TrimSpace(first)
	all := formats()
	for i := range all {
		if all[i].name == name || name == "" && all[i].sniff(first, text) {
			return &all[i], nil
		}
	}
	if name != "" {
		return nil, fmt.Errorf("trace format %s is unknown\nhint: it is one of %s", quote(name), names())
	}
	for _, r := range refusals {
		if r.sniff(first, text) {
			return nil, &Error{File: in.file, Bad: Bad{Why: r.why}, Hint: r.hint}
		}
	}
	return nil, &Error{File: in.file, Bad: Bad{Why: "is no workload of a known form; it begins with " + quote(first)},
		Hint: "known are " + names() + ".\n" + ourForm}
}

// plain tells text from what else a file may hold.
func plain(file string, head []byte) error {
	why := ""
	switch {
	case len(bytes.TrimSpace(head)) == 0:
		why = "is empty"
	case bytes.IndexByte(head, 0) >= 0 || !mostlyText(head):
		why = "is not text"
	default:
		return nil
	}
	return &Error{File: file, Bad: Bad{Why: why}, Hint: ourForm}
}

// mostlyText allows for a few bytes of an old encoding in names.
func mostlyText(head []byte) bool {
	odd := 0
	for rest := head; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 || r < ' ' && !strings.ContainsRune("\t\n\r\f", r) {
			odd++
		}
		rest = rest[n:]
	}
	return odd*20 <= len(head)
}

// fail is an error of the whole file; line is 0 if it has no place.
func (in *input) fail(line int, hint, why string, args ...any) error {
	return &Error{File: in.file, Bad: Bad{Line: line, Why: fmt.Sprintf(why, args...)}, Hint: hint}
}

// take adds the job that a row was read as, or deals with the row's error. It
// returns an error if reading must end.
func (in *input) take(line int, j Job, err error) error {
	if err == errLeft {
		return nil
	}
	if err == nil {
		err = in.add(line, j)
	}
	if len(in.t.Jobs) > jobsMost {
		return in.fail(line, "cut it into parts", "has more than %d jobs", jobsMost)
	}
	if err != nil {
		return in.bad(line, err.Error())
	}
	return nil
}

func (in *input) bad(line int, why string) error {
	if !in.lenient {
		return in.fail(line, in.form, "%s", why)
	}
	in.t.Skipped = append(in.t.Skipped, Bad{line, why})
	return nil
}

// leave counts a job as left out.
func (in *input) leave(why string) error {
	i := slices.IndexFunc(in.left, func(l leaving) bool { return l.why == why })
	if i < 0 {
		i, in.left = len(in.left), append(in.left, leaving{why: why})
	}
	in.left[i].count++
	return errLeft
}

// several counts: 1 job, 2 jobs.
func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (in *input) note(form string, args ...any) {
	in.t.Notes = append(in.t.Notes, fmt.Sprintf(form, args...))
}

// add checks a job and puts it into the trace.
func (in *input) add(line int, j Job) error {
	if j.Full == 0 {
		j.Full = j.Runtime
	}
	switch {
	case j.ID == "":
		return errors.New("the job has no id")
	case in.seen[j.ID] > 0:
		return fmt.Errorf("id %s is that of %d too", quote(j.ID), in.seen[j.ID])
	case j.GPUs < 1 || j.GPUs > gpusMost:
		return fmt.Errorf("%d GPUs: must be from 1 to %d", j.GPUs, gpusMost)
	case j.Runtime <= 0 || j.Runtime > timeMost:
		return fmt.Errorf("run time %s: must be above 0 and at most 100 years", j.Runtime)
	case j.Full < j.Runtime || j.Full > timeMost:
		return fmt.Errorf("full run time %s: must be at least the run time and at most 100 years", j.Full)
	case j.Limit < 0 || j.Limit > timeMost:
		return fmt.Errorf("time limit %s: must be from 0 to 100 years", j.Limit)
	case j.Submit < 0 || j.Submit > 2*timeMost:
		return errors.New("submitted at an impossible time")
	}
	for _, s := range []string{j.ID, j.App, j.User, j.Account} {
		if len(s) > textMost || !printable(s) {
			return fmt.Errorf("%s: must be printable and of at most %d bytes", quote(s), textMost)
		}
	}
	j.Name, j.Model = clean(j.Name), clean(j.Model)
	in.seen[j.ID] = line
	in.t.Jobs = append(in.t.Jobs, j)
	in.lines = append(in.lines, line)
	return nil
}

// finish sorts the jobs and counts time from the first.
func (in *input) finish() (*Trace, error) {
	t := &in.t
	if err := in.order(); err != nil {
		return nil, err
	}
	for _, l := range in.left {
		in.note("Left out: %s (%s).", l.why, several(l.count, "job"))
	}
	slices.SortStableFunc(t.Skipped, func(a, b Bad) int { return a.Line - b.Line })
	if len(t.Jobs) == 0 {
		why := "has no job"
		if len(t.Skipped) > 0 {
			why = fmt.Sprintf("has no job that can be used; the first bad row: %s", t.Skipped[0].Why)
		} else if len(in.left) > 0 {
			why = "has no job that can be used: " + strings.Join(t.Notes, "; ")
		}
		return nil, in.fail(0, in.form, "%s", why)
	}
	in.own()
	return t, nil
}

func (in *input) order() error {
	t := &in.t
	by := make([]int, len(t.Jobs))
	for i := range by {
		by[i] = i
	}
	slices.SortStableFunc(by, func(a, b int) int { return int(min(max(t.Jobs[a].Submit-t.Jobs[b].Submit, -1), 1)) })
	var jobs []Job
	for _, i := range by {
		first := t.Jobs[by[0]].Submit
		j := t.Jobs[i]
		if j.Submit -= first; j.Submit > timeMost {
			if err := in.bad(in.lines[i], "submitted more than 100 years after the first"); err != nil {
				return err
			}
			continue
		}
		jobs = append(jobs, j)
	}
	if !in.epoch.IsZero() && len(jobs) > 0 {
		t.Start = in.epoch.Add(t.Jobs[by[0]].Submit).UTC()
	}
	t.Jobs = jobs
	return nil
}

// own makes each job without an app its own, under a name that no other has.
func (in *input) own() {
	apps := map[string]bool{}
	for i := range in.t.Jobs {
		apps[in.t.Jobs[i].App] = true
	}
	for i := range in.t.Jobs {
		if j := &in.t.Jobs[i]; j.App == "" {
			for j.App = j.ID; apps[j.App]; j.App += "'" {
			}
			apps[j.App] = true
		}
	}
}
